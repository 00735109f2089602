"""Records one forward pass of a backbone: input and output of the first norm of each block, and the attention's input.

The backbones need no code for it. Forward hooks read the tokens, and a `TorchFunctionMode` reads the arguments of
`F.scaled_dot_product_attention`, from which the weights are computed again. Without a gradient, attention with a bias
also calls that function on a CPU. Of third-party models with replaced norms only the tokens are recorded.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
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
from tokennorm.backbones.base import Pyramid
from tokennorm.padding import image_sizes_of, whole_tokens
from tokennorm.replace.grid_norm_adapter import GridNormAdapter

_LINEAR_SIDE = 7  # PVTv2-Li's keys are a grid of 7 x 7
_CHUNK = 2**25  # attention weights computed at a time


@dataclass
class Attention:
    """The input of one block's attention, and the places of its tokens.

    Attributes:
        query: (M, N, Q, D), with M windows of the image and N heads.
        key: (M, N, K, D).
        value: (M, N, K, D).
        mask: As `attention_weights` takes it, or None.
        scale: Factor of the logits, or None.
        query_places: (M, Q, 2), centers in tokens, NaN for class tokens and padding.
        key_places: (M, K, 2), likewise.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float | None
    query_places: Tensor
    key_places: Tensor

    def weights(self) -> Tensor:
        """Returns the attention weights, (M, N, Q, K)."""
        return attention_weights(self.query, self.key, self.mask, self.scale)

    def mean_distances(self, uniform: bool = False) -> Tensor:
        """Returns d of B.1 for each head, (N,), in tokens: the mean of `attention_distance` over the image's tokens.

        Args:
            uniform: Replaces the weights of each query by equal ones, except for keys that the mask hides.
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
    """Tokens and attention of a block for one image, without padding and class token.

    Attributes:
        name: The block's name in the backbone.
        norm: Its first norm, before the attention.
        num_heads: Heads of its attention.
        stride: Side of a token, in pixels.
        before: Input of the norm, (H, W, C).
        after: Output of the norm, (H, W, C).
        attention: Input of the attention; None in third-party models.
    """

    name: str
    norm: nn.Module
    num_heads: int
    stride: int
    before: Tensor
    after: Tensor
    attention: Attention | None


def find_blocks(backbone: nn.Module) -> dict[str, nn.Module]:
    """Returns the blocks of a backbone by name, first to last.

    Raises:
        ValueError: for a backbone that is not TokenNorm's PVT, PVTv2, Swin or ViT.
    """
    if isinstance(backbone, vit.ViT):
        return {f'blocks.{i}': block for i, block in enumerate(backbone.blocks)}
    if isinstance(backbone, Pyramid):
        return {
            f'stages.{i}.blocks.{j}': block
            for i, stage in enumerate(backbone.stages)
            for j, block in enumerate(stage.blocks)
        }
    raise ValueError(
        f"{type(backbone).__name__} is not supported; TokenNorm's PVT, PVTv2, Swin and ViT are, and models whose norms "
        "token_norm_cfg replaces (dict(type='LN') for LayerNorm)"
    )


@torch.no_grad()
def look(backbone: nn.Module, images: Tensor) -> list[Layer]:
    """Runs a backbone in eval mode and float32 on one image, and records it.

    Args:
        backbone: PVT, PVTv2, Swin, ViT, or a third-party model with replaced norms.
        images: (1, 3, H, W), with the image's size noted if it is padded.

    Returns:
        The blocks that ran, first to last.

    Raises:
        ValueError: for another backbone.
    """
    backbone.eval()
    adapters = replaced_norms(backbone)
    if not adapters:
        find_blocks(backbone)  # raises for the backbones of other packages
    recorder = _NormRecorder(adapters, images) if adapters else _Recorder(backbone, image_sizes_of(images))
    handles = recorder.register()
    autocast_dtype, backbone.autocast_dtype = getattr(backbone, 'autocast_dtype', None), None
    try:
        with recorder:
            backbone(images)
    finally:
        backbone.autocast_dtype = autocast_dtype
        for handle in handles:
            handle.remove()
    return recorder.layers


def replaced_norms(backbone: nn.Module) -> dict[str, GridNormAdapter]:
    """The norms that `replace_norms` put into a third-party model: by name of the block, the first norm of each."""
    found = {}
    for name, module in backbone.named_modules():
        if isinstance(module, GridNormAdapter):
            found.setdefault(name.rpartition('.')[0], module)
    return found


class _NormRecorder(nullcontext):
    """Records the tokens before and after the norms of a third-party model that runs inside its context."""

    def __init__(self, adapters: dict[str, GridNormAdapter], images: Tensor) -> None:
        super().__init__()
        self.adapters = adapters
        self.image_height = images.shape[2]
        self.layers: list[Layer] = []

    def register(self) -> list[Any]:
        return [
            adapter.norm.register_forward_hook(partial(self._see_tokens, name))
            for name, adapter in self.adapters.items()
        ]

    def _see_tokens(self, name: str, norm: nn.Module, args: tuple, out: Tensor) -> None:
        height, width = out.shape[1:3] if len(args) == 1 else args[1][0].tolist()  # without padding
        before, after = (tokens[0, :height, :width] for tokens in (args[0], out))
        stride = self.image_height // out.shape[1]
        self.layers.append(Layer(name, norm, self.adapters[name].num_heads, stride, before, after, None))


class _Recorder(TorchFunctionMode):
    """Records the layers of a backbone that runs inside its context."""

    def __init__(self, backbone: nn.Module, image_sizes: Tensor | None) -> None:
        super().__init__()
        self.backbone = backbone
        self.image_sizes = image_sizes
        self.layers: list[Layer] = []
        self.grid = (0, 0)
        self.tokens: tuple[Tensor, Tensor] | None = None
        self.arguments: tuple[Any, ...] | None = None  # of the attention that is running

    def register(self) -> list[Any]:
        embeds = [self.backbone] if isinstance(self.backbone, vit.ViT) else self.backbone.stages
        handles = [owner.patch_embed.register_forward_hook(self._see_grid) for owner in embeds]
        for block in find_blocks(self.backbone).values():
            handles += [
                block.norm1.register_forward_hook(self._see_tokens),
                block.attn.register_forward_pre_hook(self._see_arguments),
                block.attn.register_forward_hook(self._check_seen),
            ]
        self.names = {block.norm1: (name, block) for name, block in find_blocks(self.backbone).items()}
        return handles

    def _see_grid(self, module: nn.Module, args: tuple, out: Tensor) -> None:
        self.grid = tuple(out.shape[1:3])

    def _see_tokens(self, norm: nn.Module, args: tuple, out: Tensor) -> None:
        self.norm, self.tokens = norm, (args[0], out)

    def _see_arguments(self, attn: nn.Module, args: tuple) -> None:
        self.arguments = args

    def _check_seen(self, attn: nn.Module, args: tuple, out: Tensor) -> None:
        if self.arguments is not None:
            raise RuntimeError(
                f'{self.names[self.norm][0]}: its attention does not call F.scaled_dot_product_attention'
            )

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and self.arguments is not None:
            self._see_attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _see_attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
    ) -> None:
        name, block = self.names[self.norm]
        height, width = self.grid
        stride = _stride(self.backbone, name)
        inside = (height, width)
        if self.image_sizes is not None:
            inside = tuple(whole_tokens(self.image_sizes, stride)[0].tolist())
        before, after = (self._tokens_of_image(tokens, inside) for tokens in self.tokens)
        has_class_token = self.tokens[0].shape[1:3] != (height, width)
        query_places, key_places = (
            without_place_beyond(places, inside)
            for places in attention_places(block.attn, (height, width), self.arguments[1:], has_class_token)
        )
        attention = Attention(query, key, value, attn_mask, scale, query_places, key_places)
        self.arguments = None
        self.layers.append(Layer(name, block.norm1, block.attn.num_heads, stride, before, after, attention))

    def _tokens_of_image(self, tokens: Tensor, inside: tuple[int, int]) -> Tensor:
        """(1, H, W, C), or (1, 1, 1 + H * W, C) with a class token, -> (H', W', C)."""
        height, width = self.grid
        grid = tokens.flatten(0, 2)[-height * width :].unflatten(0, (height, width))
        return grid[: inside[0], : inside[1]]


def _stride(backbone: nn.Module, name: str) -> int:
    return backbone.patch_size if isinstance(backbone, vit.ViT) else 4 * 2 ** int(name.split('.')[1])


def attention_places(
    attn: nn.Module, grid: tuple[int, int], others: tuple[Any, ...], has_class_token: bool
) -> tuple[Tensor, Tensor]:
    """Returns the places of the queries and the keys of an attention.

    Args:
        attn: The attention of one of the backbones.
        grid: Height and width in tokens.
        others: Arguments of its forward after the tokens: Swin's shift and mask.
        has_class_token: Whether the first token is a class token.

    Returns:
        Places (M, Q, 2) and (M, K, 2), in tokens; NaN for class tokens and for the padding of windows.
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
