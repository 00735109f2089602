"""The state dict of the DTN authors' norm."""

import torch
from torch import Tensor

_RENAMED = {'mean_norm_weight': 'mean_logit', 'var_norm_weight': 'var_logit'}


def from_published_dtn(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames the parameters of the authors' norm to those of `DTN(form='published')`.

    Their `pos_proj` is a linear layer on (dx, dy, dx^2 + dy^2), and its softmax runs over the index that Eq. 6 holds
    fixed: dx and dy change their sign. Its bias is the same for all positions and cancels in the softmax.

    Args:
        state_dict: One norm's parameters, or a model's: keys may have prefixes, and other keys pass unchanged.

    Returns:
        A new dict for `load_state_dict(strict=True)`. `state_dict` is not changed.
    """
    converted = {}
    for key, value in state_dict.items():
        prefix, _, name = key.rpartition('.')
        prefix = f'{prefix}.' if prefix else ''
        if name in _RENAMED:
            converted[prefix + _RENAMED[name]] = value
        elif key.endswith('pos_proj.weight'):
            dx, dy, square = value.unbind(dim=-1)
            converted[key.removesuffix('pos_proj.weight') + 'position'] = torch.stack([square, -dx, -dy], dim=-1)
        elif not key.endswith('pos_proj.bias'):
            converted[key] = value
    return converted
