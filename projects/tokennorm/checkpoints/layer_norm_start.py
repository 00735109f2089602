"""A checkpoint of a network with LayerNorm, for one whose token norms go on from there."""

from torch import Tensor, nn

from tokennorm.norms import DTN


def with_layer_norm_start(model: nn.Module, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Adds the initial lambda and positions of each `DTN(start='layer_norm')` that a state dict has LayerNorm's
    parameters for and no others.

    Args:
        model: The model with DTN.
        state_dict: Its parameters, or those of the same model with LayerNorm. It is not changed.

    Returns:
        A new dict.
    """
    filled = dict(state_dict)
    for name, module in model.named_modules():
        if isinstance(module, DTN) and module.start == 'layer_norm' and f'{name}.weight' in state_dict:
            own = {f'{name}.{key}': value for key, value in module.state_dict().items()}
            if not any(key in state_dict for key in own if not key.endswith(('weight', 'bias'))):
                filled |= {key: value for key, value in own.items() if key not in state_dict}
    return filled
