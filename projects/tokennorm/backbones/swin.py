"""Swin Transformer (Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", 2021), with
Dynamic Token Normalization and Dual PatchNorm as options.

With `token_norm_cfg=None` and `stem_cfg=None` it is the published detection backbone (`out_type='featmap'`) or
classifier (`out_type='avg_featmap'`, without its linear head). The detection backbone shifts every second block's
windows, the classifier only along sides longer than one window: at 224 x 224 not in the last stage. Feature maps that
the window does not divide are padded with zeros before the shift, as in the published detection code; timm pads after.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.backbones.base import Pyramid, resolve_arch
from tokennorm.checkpoints.layouts import Converted, StateDict
from tokennorm.checkpoints.swin import SWIN_LAYOUTS, from_published_swin
from tokennorm.images.padding import ImageArea
from tokennorm.layers import build_stem
from tokennorm.layers.block import Mlp
from tokennorm.layers.building import build_norm
from tokennorm.layers.pad import crop, pad_to_multiple, round_up
from tokennorm.registry import MODELS

_MLP = dict(mlp_ratios=(4, 4, 4, 4))
ARCHS: dict[str, dict[str, tuple[int, ...]]] = {
    'tiny': dict(embed_dims=(96, 192, 384, 768), depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24), **_MLP),
    'small': dict(embed_dims=(96, 192, 384, 768), depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24), **_MLP),
    'base': dict(embed_dims=(128, 256, 512, 1024), depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32), **_MLP),
    'large': dict(embed_dims=(192, 384, 768, 1536), depths=(2, 2, 18, 2), num_heads=(6, 12, 24, 48), **_MLP),
}


def relative_positions(window: int) -> Tensor:
    """Row of the bias table for each query and key in a window, (window^2, window^2).

    A query dy below and dx right of its key has the row (dy + window - 1) * (2 window - 1) + dx + window - 1.
    """
    y, x = (axis.flatten() for axis in torch.meshgrid(torch.arange(window), torch.arange(window), indexing='ij'))
    dy, dx = y[:, None] - y, x[:, None] - x
    return (dy + window - 1) * (2 * window - 1) + dx + window - 1


def shift_mask(
    grid: tuple[int, int], window: int, shift: tuple[int, int], like: Tensor, extents: Tensor | None = None
) -> Tensor:
    """Mask that separates tokens which only the cyclic shift has brought into one window: 0, and -inf for these.

    It is (windows, window^2, window^2), with the device and dtype of `like`. The sides of the grid, in tokens, are
    multiples of `window`; `shift` are the rows and columns that were moved from the start of the grid to its end. With
    the extents of each image in the grid, int (B, 2), the windows of an image alone end there, and the mask is
    (B * windows, window^2, window^2).
    """
    extents = torch.tensor([grid], device=like.device) if extents is None else (extents + window - 1) // window * window
    regions = []
    for size, moved, extent in zip(grid, shift, extents.unbind(1), strict=True):
        places = torch.arange(size, device=like.device)
        beyond = places + moved >= extent[:, None]
        regions.append(torch.where(places >= size - moved, 2, beyond.long()))
    region = 3 * regions[0][:, :, None] + regions[1][:, None]
    region = rearrange(region, 'b (h wh) (w ww) -> (b h w) (wh ww)', wh=window, ww=window)
    apart = region[:, :, None] != region[:, None, :]
    return torch.zeros(apart.shape, dtype=like.dtype, device=like.device).masked_fill(apart, float('-inf'))


def attend_with_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention of (B * M, N, T, D): M windows per image, N heads of D channels, T tokens per window.

    The additive bias is (M, N, T, T), or (1, N, T, T) if all windows share it. torch's own attention has no fast kernel
    on a CPU for a bias that needs a gradient, so that case is written out.
    """
    if q.device.type == 'cpu' and bias.requires_grad:
        logits = (q * q.shape[-1] ** -0.5) @ k.mT
        logits = (logits.unflatten(0, (len(q) // len(bias), len(bias))) + bias).flatten(0, 1)
        return logits.softmax(dim=-1).to(v.dtype) @ v
    if bias.shape[0] != 1:  # len() would fix the sides of an exported graph
        bias = bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1)
    x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
    # An exporter writes the attention out. Its result then has other strides, and a view of it would be refused.
    return x.contiguous() if torch.compiler.is_exporting() else x


class WindowAttention(nn.Module):
    """Attention within windows, with a learned bias for each offset and head (Swin, Eq. 4), shifted or not."""

    image_area: ImageArea | None = None  # of `mask_padding`: outside of it are zeros, as after the end of a grid

    def __init__(self, dims: int, num_heads: int, window: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.window = window
        self.qkv = nn.Linear(dims, 3 * dims)
        self.proj = nn.Linear(dims, dims)
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * window - 1) ** 2, num_heads))
        self.register_buffer('relative_position_index', relative_positions(window), persistent=False)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        with torch.inference_mode(False), torch.device('cpu'):  # no state dict has it, nor does a meta device
            index = relative_positions(self.window)
            self.relative_position_index = index.to(self.relative_position_bias_table.device)

    def forward(self, x: Tensor, shift: tuple[int, int], mask: Tensor | None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). `mask` is the result of `shift_mask`, or None without a shift."""
        batch_size, height, width = x.shape[:3]
        inside = None if self.image_area is None else self.image_area.inside(height, width)
        x = x if inside is None else torch.where(inside[..., None], x, 0)
        x = pad_to_multiple(x, self.window, channels_last=True)
        rows, columns = x.shape[1] // self.window, x.shape[2] // self.window
        if mask is not None:
            x = x.roll((-shift[0], -shift[1]), dims=(1, 2))
        x = rearrange(x, 'b (h wh) (w ww) c -> (b h w) (wh ww) c', wh=self.window, ww=self.window)
        q, k, v = rearrange(self.qkv(x), 'm t (three n d) -> three m n t d', three=3, n=self.num_heads)
        x = self.proj(rearrange(attend_with_bias(q, k, v, self.bias(mask)), 'm n t d -> m t (n d)'))
        x = x.unflatten(0, (batch_size, rows, columns))
        x = rearrange(x, 'b h w (wh ww) c -> b (h wh) (w ww) c', wh=self.window)
        if mask is not None:
            x = x.roll(shift, dims=(1, 2))
        return crop(x, height, width)

    def bias(self, mask: Tensor | None) -> Tensor:
        """Bias of each offset plus the shift mask: (windows, N, T, T), or (1, N, T, T) without one."""
        bias = self.relative_position_bias_table[self.relative_position_index]
        bias = rearrange(bias, 'query key n -> 1 n query key').contiguous()
        return bias if mask is None else bias + mask[:, None]


class PatchMerging(nn.Module):
    """Norm and linear layer over 2 x 2 tokens, with zeros at the right and the bottom of odd grids."""

    def __init__(self, in_dims: int, dims: int, norm_cfg: Mapping[str, Any]) -> None:
        super().__init__()
        self.norm = build_norm(norm_cfg, 4 * in_dims)
        self.reduction = nn.Linear(4 * in_dims, dims, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, ceil(H / 2), ceil(W / 2), C')."""
        x = pad_to_multiple(x, 2, channels_last=True)
        return self.reduction(self.norm(rearrange(x, 'b (h ph) (w pw) c -> b h w (pw ph c)', ph=2, pw=2)))


class Stage(nn.Module):
    """Patch embedding or merging, and blocks. Every second block shifts its windows by half a window.

    The norm is for the output; the next stage continues from the grid before it. With `shift_single_windows` sides that
    are not longer than one window are shifted too.
    """

    image_area: ImageArea | None = None  # of `mask_padding`: shifted windows end there

    def __init__(
        self, patch_embed: nn.Module, blocks: nn.ModuleList, norm: nn.Module, window: int, shift_single_windows: bool
    ) -> None:
        super().__init__()
        self.patch_embed = patch_embed
        self.blocks = blocks
        self.norm = norm
        self.window = window
        self.shift_single_windows = shift_single_windows

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Image or grid -> (B, H, W, C). `valid`: height and width of each image in tokens, (B, 2)."""
        x = self.patch_embed(x)
        shift, mask = self.shift_of(x)
        for i, block in enumerate(self.blocks):
            x = block(x, valid, shift, mask) if i % 2 else block(x, valid, (0, 0), None)
        return x

    def shift_of(self, x: Tensor) -> tuple[tuple[int, int], Tensor | None]:
        """Returns the shift of every second block for a grid (B, H, W, C), and the mask that these blocks share."""
        height, width = x.shape[1:3]
        half = self.window // 2
        single = self.shift_single_windows
        shift = half if single or height > self.window else 0, half if single or width > self.window else 0
        if len(self.blocks) < 2 or shift == (0, 0):
            return (0, 0), None
        grid = round_up(height, self.window), round_up(width, self.window)
        extents = None if self.image_area is None else self.image_area.extents(height, width)
        return shift, shift_mask(grid, self.window, shift, like=x, extents=extents)


@MODELS.register_module()
class Swin(Pyramid):
    """Swin Transformer for detectors and classifiers.

    `Backbone` and `Pyramid` document the arguments that are not listed here.

    Args:
        arch: 'tiny', 'small', 'base', 'large', or a dict of `embed_dims`, `depths`, `num_heads` and `mlp_ratios`, each
            with one entry per stage.
        window_size: Side of the attention's windows, in tokens.
        token_norm_stages: Leading stages that use `token_norm_cfg`. None is all (DTN paper, A.1).
        norm_cfg: None is as published: LayerNorm with eps 1e-5.
        out_type: 'featmap' returns feature maps of strides 4, 8, 16 and 32, each after its own norm. 'avg_featmap'
            returns the mean of the normalized last one, (B, C).
        frozen_stages: As in `Backbone`. (mmdet also freezes the patch merging after the last frozen blocks.)
        init_cfg: Loads checkpoints in the layout of Swin's authors, timm, mmdet, mmpretrain or TokenNorm. Output norms,
            which a classifier does not have, keep weight 1 and bias 0. Bias tables of another window are resized. With
            timm's weights the outputs are timm's where the window divides all feature maps.
    """

    vector_type = 'avg_featmap'
    layouts = SWIN_LAYOUTS

    def __init__(
        self,
        arch: str | Mapping[str, Sequence[int]] = 'tiny',
        in_channels: int = 3,
        window_size: int = 7,
        token_norm_stages: int | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        norm_cfg: Mapping[str, Any] | None = None,
        out_type: Literal['featmap', 'avg_featmap'] = 'featmap',
        **kwargs: Any,
    ) -> None:
        arch = resolve_arch('Swin', ARCHS, arch)
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-5)
        super().__init__(arch, norm_cfg, token_norm_stages, out_type=out_type, **kwargs)
        self._check_range('window_size', [window_size], 2)
        for i, dims in enumerate(self.embed_dims):
            stem = dict(in_channels=in_channels, embed_dims=dims, patch_size=4, norm_cfg=norm_cfg)
            patch_embed = PatchMerging(self.embed_dims[i - 1], dims, norm_cfg) if i else build_stem(stem_cfg, **stem)
            attn = partial(WindowAttention, dims, arch['num_heads'][i], window_size)
            blocks = self._blocks(i, attn, partial(Mlp, dims, arch['mlp_ratios'][i]))
            has_norm = out_type == 'featmap' or i == len(self.embed_dims) - 1
            norm = build_norm(norm_cfg, dims) if has_norm else nn.Identity()
            self.stages.append(Stage(patch_embed, blocks, norm, window_size, out_type == 'featmap'))
            if out_type == 'featmap' and i not in self.out_indices:
                self.stages[i].norm.requires_grad_(False)
        self._finish(self.stages)

    def _layer_depth(self, name: str) -> int | None:
        """Returns the layer as `Pyramid` does. Norms after stages have the last one: only necks and heads use them."""
        return None if re.match(r'stages\.\d+\.norm\.', name) else super()._layer_depth(name)

    def from_published(self, state_dict: StateDict) -> Converted:
        return from_published_swin(state_dict, self.out_type)

    def _feature_map(self, stage: nn.Module, x: Tensor, valid: Tensor | None) -> Tensor:
        return rearrange(stage.norm(x, valid), 'b h w c -> b c h w')

    def _vector(self, x: Tensor) -> Tensor:
        return self.stages[-1].norm(x).mean(dim=(1, 2))
