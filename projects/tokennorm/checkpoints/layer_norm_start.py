"""A checkpoint of a network with LayerNorm, for one whose token norms go on from there."""

from torch import Tensor, nn

from tokennorm.norms import DTN


def with_layer_norm_start(model: nn.Module, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Adds the initial lambda and positions of each `DTN(start='layer_norm')` that a state dict has LayerNorm's
    weight and bias for, and nothing else. An affine instance or group norm has the same keys and cannot be told apart.

    Args:
        model: The model with DTN.
        state_dict: Its parameters, or those of the same model with LayerNorm. It is not changed.

    Returns:
        A new dict.
    """
    filled = dict(state_dict)
    for name, module in model.named_modules():
        if not isinstance(module, DTN) or module.start != 'layer_norm':
            continue
        shared = {f'{name}.weight', f'{name}.bias'}
        own = {f'{name}.{key}': value for key, value in module.state_dict().items()}
        if shared <= set(state_dict) and not (set(own) - shared) & set(state_dict):
            filled |= {key: value for key, value in own.items() if key not in shared}
    return filled
