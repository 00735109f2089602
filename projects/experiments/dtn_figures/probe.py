"""Records one forward pass of a backbone: input and output of the first norm of each block, and the attention's input.

The backbones need no code for it. Forward hooks read the tokens, and a `TorchFunctionMode` reads the arguments of
`F.scaled_dot_product_attention`, from which the weights are computed again. Without a gradient, attention with a bias
also calls that function on a CPU. Of third-party models with replaced norms only the tokens are recorded.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from experiments.dtn_figures.attention import attention_distance, attention_places, attention_weights, places_inside
from tokennorm.backbones import vit
from tokennorm.base.messages import UserError
from tokennorm.layers.block import Block
from tokennorm.replace.grid_norm_adapter import GridNormAdapter

_QUERIES = 1024  # whose attention weights are computed at a time


@dataclass
class Attention:
    """The input of one block's attention in M windows of the image with N heads, and the places of its tokens."""

    query: Tensor  # (M, N, Q, D)
    key: Tensor  # (M, N, K, D)
    value: Tensor  # (M, N, K, D)
    mask: Tensor | None  # added to the logits, (M or 1, N, Q, K)
    query_places: Tensor  # (M, Q, 2), centers in tokens, NaN for class tokens and padding
    key_places: Tensor  # (M, K, 2), likewise

    def mean_distances(self, uniform: bool = False) -> Tensor:
        """Returns d of B.1 for each head, (N,), in tokens: the mean of `attention_distance` over the image's tokens.

        With `uniform` the weights of each query are equal, except for keys that the mask hides.
        """
        query, mask = self.query, self.mask
        if uniform:
            query = torch.zeros_like(query)
            mask = None if mask is None else mask.masked_fill(mask.isfinite(), 0)
        distances = []
        for start in range(0, query.shape[2], _QUERIES):
            rows = slice(start, start + _QUERIES)
            weights = attention_weights(query[:, :, rows], self.key, None if mask is None else mask[:, :, rows])
            distances.append(attention_distance(weights, self.query_places[:, rows], self.key_places))
        return torch.cat(distances, dim=-1).nanmean(dim=(0, 2))


@dataclass
class Layer:
    """Tokens and attention of a block for one image, without padding and class token."""

    name: str  # the block's name in the backbone
    norm: nn.Module  # its first norm, before the attention
    num_heads: int  # heads of its attention
    stride: int  # side of a token, in pixels
    before: Tensor  # input of the norm, (H, W, C)
    after: Tensor  # output of the norm, (H, W, C)
    attention: Attention | None  # input of the attention; None in third-party models


class _AttentionCalls(TorchFunctionMode):
    """Records query, key, value and mask of each call of `F.scaled_dot_product_attention`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.calls.append((*args[:3], kwargs.get('attn_mask')))
        return func(*args, **kwargs)


def find_blocks(backbone: nn.Module) -> dict[str, nn.Module]:
    """Returns the blocks of TokenNorm's PVT, PVTv2, Swin or ViT by name, first to last."""
    return {name: module for name, module in backbone.named_modules() if isinstance(module, Block)}


def replaced_norms(backbone: nn.Module) -> dict[str, GridNormAdapter]:
    """The norms that `replace_norms` put into a third-party model: by name of the block, the first norm of each."""
    found = {}
    for name, module in backbone.named_modules():
        if isinstance(module, GridNormAdapter):
            found.setdefault(name.rpartition('.')[0], module)
    return found


@torch.no_grad()
def look(backbone: nn.Module, images: Tensor) -> list[Layer]:
    """Runs a backbone in eval mode and float32 on one image (1, 3, H, W), and returns its blocks, first to last."""
    backbone.eval()
    adapters = replaced_norms(backbone)
    blocks = {} if adapters else find_blocks(backbone)
    norms = {name: adapter.norm for name, adapter in adapters.items()}
    norms |= {name: block.norm1 for name, block in blocks.items()}
    if not norms:
        raise UserError(
            f"{type(backbone).__name__} is not supported; TokenNorm's PVT, PVTv2, Swin and ViT are, and models whose "
            "norms token_norm_cfg replaces (dict(type='LN') for LayerNorm)"
        )
    seen: dict[str, tuple[tuple, Tensor]] = {}  # arguments and output of each norm that ran
    attn_args: dict[str, tuple] = {}  # what each attention gets after the tokens: Swin's shift and mask
    handles = [
        norm.register_forward_hook(lambda _, args, out, name=name: seen.update({name: (args, out)}))
        for name, norm in norms.items()
    ]
    handles += [
        block.attn.register_forward_pre_hook(lambda _, args, name=name: attn_args.update({name: args[1:]}))
        for name, block in blocks.items()
    ]
    recorded = _AttentionCalls()
    autocast_dtype, backbone.autocast_dtype = getattr(backbone, 'autocast_dtype', None), None
    try:
        with recorded:
            backbone(images)
    finally:
        backbone.autocast_dtype = autocast_dtype
        for handle in handles:
            handle.remove()
    layers = []
    for i, (name, (args, out)) in enumerate(seen.items()):
        if name in blocks:
            attn = blocks[name].attn
            stride = backbone.patch_size if isinstance(backbone, vit.ViT) else 4 * 2 ** int(name.split('.')[1])
            grid = tuple(-(-side // stride) for side in images.shape[2:])
        else:
            attn, stride, grid = adapters[name], images.shape[2] // out.shape[1], tuple(out.shape[1:3])
        valid = args[1] if len(args) > 1 else None
        height, width = grid if valid is None else valid[0].tolist()  # without padding
        # (1, H, W, C), or with a class token (1, 1, 1 + H * W, C)
        before, after = (
            tokens.flatten(0, 2)[-math.prod(grid) :].unflatten(0, grid)[:height, :width] for tokens in (args[0], out)
        )
        attention = None
        if name in blocks:
            shift, mask = attn_args[name] or ((0, 0), None)
            places = attention_places(attn, grid, (0, 0) if mask is None else shift, tuple(out.shape[1:3]) != grid)
            attention = Attention(*recorded.calls[i], *(places_inside(part, height, width) for part in places))
        layers.append(Layer(name, norms[name], attn.num_heads, stride, before, after, attention))
    return layers
