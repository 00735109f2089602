"""A classifier's state dict of ours without what a detector's backbone has no use for."""

from torch import Tensor


def without_class_token(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Leaves out the class token, its row of the position embedding beside it, and the norm at the output.

    Args:
        state_dict: That of a backbone of ours with `out_type='cls_token'`; of any other it returns a copy.

    Returns:
        A new dict, for the same backbone with `out_type='featmap'`.
    """
    tokens = [key for key in state_dict if key.endswith('cls_token')]
    converted = {
        key: v for key, v in state_dict.items() if key not in tokens and not (tokens and key.startswith('norm.'))
    }
    for key in (token.removesuffix('cls_token') + 'pos_embed' for token in tokens):
        converted[key] = state_dict[key][:, 1:]
    return converted
