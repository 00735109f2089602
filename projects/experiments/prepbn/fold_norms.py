"""Merges PRepBN and TaperNorm layers into the linear layers after them, for inference and export."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from tokennorm.layers.block import Block, NoNorm
from tokennorm.norms import PRepBN, TaperNorm
from tokennorm.replace.grid_norm_adapter import GridNormAdapter

Model = TypeVar('Model', bound=nn.Module)
MERGED = (PRepBN, TaperNorm)


class ChannelAffine(nn.Module):
    """scale * x + shift, each (C,), of tensors (..., C): a normalization layer without statistics."""

    is_token_norm = True

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale)
        self.shift = nn.Parameter(shift)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused."""
        return self.scale * x + self.shift


def fold_norms(model: Model) -> Model:
    """Returns a copy of a model in eval mode, without `PRepBN` and `TaperNorm`, that gives the same outputs.

    In TokenNorm's blocks these layers are merged into the next linear layer: the MLP's first one, and queries, keys and
    values if nothing is between. Where zeros are padded to windows, or a convolution reduces keys and values, one scale
    and shift per channel stays; so it does for the others. Those that `replace_norms` put into a third-party model
    are not changed.
    """
    model = copy.deepcopy(model).eval()
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        if isinstance(block.norm2, MERGED) and isinstance(getattr(block.mlp, 'fc1', None), nn.Linear):
            _merge(block.norm2, block.mlp.fc1)
            block.norm2 = NoNorm()
        reads_more = hasattr(block.attn, 'window') or hasattr(block.attn, 'sr')  # zeros, or a convolution reads it too
        layers = [getattr(block.attn, name, None) for name in ('qkv', 'q', 'kv')]
        linears = [layer for layer in layers if isinstance(layer, nn.Linear) and not reads_more]
        if isinstance(block.norm1, MERGED) and linears:
            for linear in linears:
                _merge(block.norm1, linear)
            block.norm1 = NoNorm()
    adapted = [module.norm for module in model.modules() if isinstance(module, GridNormAdapter)]
    for name, module in list(model.named_modules()):
        if isinstance(module, MERGED) and module not in adapted:  # prefix tokens need its LayerNorm
            model.set_submodule(name, ChannelAffine(*module.scale_and_shift()))
    return model


@torch.no_grad()
def _merge(norm: PRepBN | TaperNorm, linear: nn.Linear) -> None:
    """linear(scale * x + shift) as one linear layer, computed in float64."""
    scale, shift = (value.double() for value in norm.scale_and_shift())
    weight = linear.weight.double()
    bias = weight @ shift if linear.bias is None else linear.bias.double() + weight @ shift
    linear.bias = nn.Parameter(bias.to(linear.weight.dtype))
    linear.weight.copy_(weight * scale)
