"""Normalizers' parameters: the published names of DTN, and DTN's initialization from a LayerNorm."""

import torch
from torch import nn

from tokennorm.checkpoints.layouts import Converted, StateDict
from tokennorm.norms import DTN

_RENAMED = {'mean_norm_weight': 'mean_logit', 'var_norm_weight': 'var_logit', 'pos_proj.weight': 'position'}


def from_published_dtn(state_dict: StateDict) -> Converted:
    """Renames the parameters of the DTN authors' norm to those of `DTN(form='published')`.

    Their `pos_proj` is a linear layer on (dx, dy, dx^2 + dy^2). Its softmax runs over the index that Eq. 6 holds fixed,
    so dx and dy change sign. The bias of `pos_proj` is equal for all positions and cancels in the softmax.

    The keys of one norm or of a model may have prefixes. A DTN is recognized by its `var_norm_weight`; all other
    entries pass unchanged.
    """
    converted = Converted(state_dict)
    for norm in [key.removesuffix('var_norm_weight') for key in state_dict if key.endswith('var_norm_weight')]:
        for theirs, ours in _RENAMED.items():
            if norm + theirs in converted:
                converted[norm + ours] = converted.pop(norm + theirs)
        if norm + 'position' in converted:
            dx, dy, square = converted[norm + 'position'].unbind(dim=-1)
            converted[norm + 'position'] = torch.stack([square, -dx, -dy], dim=-1)
        if norm + 'pos_proj.bias' in converted:
            converted.leave_out(norm + 'pos_proj.bias')
    return converted


def add_to_layer_norm(state_dict: Converted, model: nn.Module) -> None:
    """Adds initial lambda and position weights of DTN layers for which a state dict has only LayerNorm's parameters.

    Layers with `init='paper'` are not filled. An affine instance or group norm has the same keys as a LayerNorm
    and cannot be told apart from it.
    """
    for name, module in model.named_modules():
        if not isinstance(module, DTN) or module.init == 'paper':
            continue
        parameters = {f'{name}.{key}': value for key, value in module.state_dict().items()}
        if parameters.keys() & state_dict.keys() == {f'{name}.weight', f'{name}.bias'}:
            for key, value in parameters.items():
                state_dict.add(key, value)
