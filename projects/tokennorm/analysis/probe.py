"""Records one forward pass of a backbone: input and output of the first norm of each block, and the attention's input.

The backbones need no code for it. Forward hooks read the tokens, and a `TorchFunctionMode` reads the arguments of
`F.scaled_dot_product_attention`, from which the weights are computed again. Without a gradient, attention with a bias
also calls that function on a CPU. Of third-party models with replaced norms only the tokens are recorded.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tokennorm.analysis.attention import (
    attention_distance,
    attention_weights,
    averaged_places,
    grid_places,
    reduced_places,
    window_places,
    without_place_beyond,
)
from tokennorm.backbones import pvt, pvt_v2, swin, vit
from tokennorm.layers.block import Block
from tokennorm.padding import image_sizes_of
from tokennorm.replace.grid_norm_adapter import GridNormAdapter

_LINEAR_SIDE = 7  # PVTv2-Li's keys are a grid of 7 x 7
_CHUNK = 2**25  # attention weights computed at a time


@dataclass
class Attention:
    """The input of one block's attention in M windows of the image with N heads, and the places of its tokens."""

    query: Tensor  # (M, N, Q, D)
    key: Tensor  # (M, N, K, D)
    value: Tensor  # (M, N, K, D)
    mask: Tensor | None  # as `attention_weights` takes it
    scale: float | None  # factor of the logits
    query_places: Tensor  # (M, Q, 2), centers in tokens, NaN for class tokens and padding
    key_places: Tensor  # (M, K, 2), likewise

    def weights(self) -> Tensor:
        """Returns the attention weights, (M, N, Q, K)."""
        return attention_weights(self.query, self.key, self.mask, self.scale)

    def mean_distances(self, uniform: bool = False) -> Tensor:
        """Returns d of B.1 for each head, (N,), in tokens: the mean of `attention_distance` over the image's tokens.

        With `uniform` the weights of each query are equal, except for keys that the mask hides.
        """
        query = torch.zeros_like(self.query) if uniform else self.query
        mask = self.mask
        if mask is not None:
            mask = mask > float('-inf') if uniform and mask.dtype != torch.bool else mask
            mask = mask.expand(*query.shape[:3], self.key.shape[2])
        size = max(1, _CHUNK // (query.shape[0] * query.shape[1] * self.key.shape[2]))
        distances = []
        for start in range(0, query.shape[2], size):
            rows = slice(start, start + size)
            weights = attention_weights(
                query[:, :, rows], self.key, None if mask is None else mask[:, :, rows], self.scale
            )
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


def find_blocks(backbone: nn.Module) -> dict[str, nn.Module]:
    """Returns the blocks of TokenNorm's PVT, PVTv2, Swin or ViT by name, first to last."""
    blocks = {name: module for name, module in backbone.named_modules() if isinstance(module, Block)}
    if not blocks:
        raise ValueError(
            f"{type(backbone).__name__} is not supported; TokenNorm's PVT, PVTv2, Swin and ViT are, and models whose "
            "norms token_norm_cfg replaces (dict(type='LN') for LayerNorm)"
        )
    return blocks


@torch.no_grad()
def look(backbone: nn.Module, images: Tensor) -> list[Layer]:
    """Runs a backbone in eval mode and float32 on one image (1, 3, H, W), and returns its blocks, first to last."""
    backbone.eval()
    adapters = replaced_norms(backbone)
    blocks = {} if adapters else find_blocks(backbone)
    norms = {name: adapter.norm for name, adapter in adapters.items()}
    norms |= {name: block.norm1 for name, block in blocks.items()}
    seen: dict[str, tuple[tuple, Tensor]] = {}  # arguments and output of each norm that ran
    attentions = _AttentionCalls()
    handles = [
        norm.register_forward_hook(lambda _, args, out, name=name: seen.update({name: (args, out)}))
        for name, norm in norms.items()
    ]
    handles += [
        block.attn.register_forward_pre_hook(lambda _, args, name=name: attentions.begin(name, args))
        for name, block in blocks.items()
    ]
    autocast_dtype, backbone.autocast_dtype = getattr(backbone, 'autocast_dtype', None), None
    try:
        with attentions:
            backbone(images)
    finally:
        backbone.autocast_dtype = autocast_dtype
        for handle in handles:
            handle.remove()
    if adapters:
        return [_third_party_layer(name, adapters[name], images, *seen[name]) for name in seen]
    return [_layer(backbone, name, blocks[name], images, *seen[name], attentions) for name in seen]


def replaced_norms(backbone: nn.Module) -> dict[str, GridNormAdapter]:
    """The norms that `replace_norms` put into a third-party model: by name of the block, the first norm of each."""
    found = {}
    for name, module in backbone.named_modules():
        if isinstance(module, GridNormAdapter):
            found.setdefault(name.rpartition('.')[0], module)
    return found


def _third_party_layer(name: str, adapter: GridNormAdapter, images: Tensor, args: tuple, out: Tensor) -> Layer:
    height, width = out.shape[1:3] if len(args) == 1 else args[1][0].tolist()  # without padding
    before, after = (tokens[0, :height, :width] for tokens in (args[0], out))
    return Layer(name, adapter.norm, adapter.num_heads, images.shape[2] // out.shape[1], before, after, None)


class _AttentionCalls(TorchFunctionMode):
    """Records the arguments of each block's attention, and of the function that it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.running = ''
        self.modules: dict[str, tuple] = {}
        self.calls: dict[str, dict[str, Any]] = {}

    def begin(self, name: str, args: tuple) -> None:
        self.running, self.modules[name] = name, args

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            names = ('query', 'key', 'value', 'attn_mask')
            self.calls.setdefault(self.running, dict(zip(names, args, strict=False)) | kwargs)
        return func(*args, **kwargs)


def _layer(
    backbone: nn.Module,
    name: str,
    block: nn.Module,
    images: Tensor,
    norm_args: tuple,
    norm_out: Tensor,
    attentions: _AttentionCalls,
) -> Layer:
    if name not in attentions.calls:
        raise RuntimeError(f'{name}: its attention does not call F.scaled_dot_product_attention')
    stride = backbone.patch_size if isinstance(backbone, vit.ViT) else 4 * 2 ** int(name.split('.')[1])
    height, width = (-(-side // stride) for side in images.shape[2:])
    sizes = image_sizes_of(images)
    inside = (height, width) if sizes is None else tuple((sizes[0] // stride).clamp(min=1).tolist())
    # (1, H, W, C), or with a class token (1, 1, 1 + H * W, C)
    before, after = (
        tokens.flatten(0, 2)[-height * width :].unflatten(0, (height, width))[: inside[0], : inside[1]]
        for tokens in (norm_args[0], norm_out)
    )
    places = attention_places(
        block.attn, (height, width), attentions.modules[name][1:], norm_out.shape[1:3] != (height, width)
    )
    call = attentions.calls[name]
    attention = Attention(
        call['query'],
        call['key'],
        call['value'],
        call.get('attn_mask'),
        call.get('scale'),
        *(without_place_beyond(part, inside) for part in places),
    )
    return Layer(name, block.norm1, block.attn.num_heads, stride, before, after, attention)


def attention_places(
    attn: nn.Module, grid: tuple[int, int], others: tuple[Any, ...], has_class_token: bool
) -> tuple[Tensor, Tensor]:
    """Returns the places of an attention's queries (M, Q, 2) and keys (M, K, 2), in tokens.

    They are NaN for class tokens and for the padding of windows. `others` are the arguments of its forward after the
    tokens: Swin's shift and mask.
    """
    if isinstance(attn, swin.WindowAttention):
        shift, mask = others
        places = window_places(*grid, attn.window, (0, 0) if mask is None else shift)
        return places, places
    if isinstance(attn, vit.WindowAttention):
        places = window_places(*grid, attn.window)
        return places, places
    places = grid_places(*grid).view(1, -1, 2)
    if has_class_token:
        places = F.pad(places, (0, 0, 1, 0), value=float('nan'))
    if isinstance(attn, pvt_v2.LinearSpatialReductionAttention):
        return places, averaged_places(*grid, _LINEAR_SIDE)
    if isinstance(attn, pvt.SpatialReductionAttention) and attn.sr_ratio > 1:
        return places, reduced_places(*grid, attn.sr_ratio)
    return places, places
