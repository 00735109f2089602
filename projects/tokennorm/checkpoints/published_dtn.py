"""The state dict of the DTN authors' norm."""

import torch
from torch import Tensor

_RENAMED = {'mean_norm_weight': 'mean_logit', 'var_norm_weight': 'var_logit'}


def from_published_dtn(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames the parameters of the authors' norm to those of `DTN(form='published')`.

    Their `pos_proj` is a linear layer on (dx, dy, dx^2 + dy^2), and its softmax runs over the index that Eq. 6 holds
    fixed: dx and dy change their sign. Its bias is the same for all positions and cancels in the softmax.

    Args:
        state_dict: One norm's parameters, or a model's: keys may have prefixes. What belongs to no DTN, which is known
            by its `var_norm_weight`, passes unchanged.

    Returns:
        A new dict for `load_state_dict(strict=True)`. `state_dict` is not changed.
    """
    norms = {key.removesuffix('var_norm_weight') for key in state_dict if key.endswith('var_norm_weight')}
    converted = {}
    for key, value in state_dict.items():
        norm = next((prefix for prefix in norms if key.startswith(prefix)), None)
        name = key if norm is None else key.removeprefix(norm)
        if norm is None or name in ('weight', 'bias'):
            converted[key] = value
        elif name == 'pos_proj.weight':
            dx, dy, square = value.unbind(dim=-1)
            converted[norm + 'position'] = torch.stack([square, -dx, -dy], dim=-1)
        elif name != 'pos_proj.bias':
            converted[norm + _RENAMED.get(name, name)] = value
    return converted
