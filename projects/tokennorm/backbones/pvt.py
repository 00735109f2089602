"""Pyramid Vision Transformer (Wang et al., "Pyramid Vision Transformer: A Versatile Backbone for Dense Prediction
without Convolutions", 2021), with Dynamic Token Normalization and Dual PatchNorm as options.

With `token_norm_cfg=None` and `stem_cfg=None` it is the published detection backbone (`out_type='featmap'`) or
classifier (`out_type='cls_token'`, without its linear head). Two cases differ: images whose sides 32 does not divide
are padded instead of cut, and feature maps smaller than the spatial reduction are padded to one key.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.backbones.base import Pyramid, resolve_arch
from tokennorm.backbones.vit_attention import hide_keys
from tokennorm.checkpoints.layouts import Converted, StateDict
from tokennorm.checkpoints.pvt import PVT_LAYOUTS, from_published_pvt
from tokennorm.images.padding import ImageArea
from tokennorm.layers import PatchEmbed, build_stem
from tokennorm.layers.block import Mlp
from tokennorm.layers.building import build_norm
from tokennorm.layers.patch_embed import pair_of
from tokennorm.layers.positions import positions_of, prepend_token
from tokennorm.registry import MODELS

_PATCH_SIZES = (4, 2, 2, 2)
_WIDTHS = dict(embed_dims=(64, 128, 320, 512), num_heads=(1, 2, 5, 8), mlp_ratios=(8, 8, 4, 4), sr_ratios=(8, 4, 2, 1))
ARCHS: dict[str, dict[str, tuple[int, ...]]] = {
    'tiny': dict(depths=(2, 2, 2, 2), **_WIDTHS),
    'small': dict(depths=(3, 4, 6, 3), **_WIDTHS),
    'medium': dict(depths=(3, 4, 18, 3), **_WIDTHS),
    'large': dict(depths=(3, 8, 27, 3), **_WIDTHS),
}
# The heads of the DTN authors' PVT. With fewer than four, Eq. 7 of the DTN paper centers every head on its own token.
ARCHS |= {f'{name}-dtn': row | dict(num_heads=(4, 4, 5, 8)) for name, row in ARCHS.items()}
_MINI = dict(embed_dims=(32, 64, 128, 256), num_heads=(1, 2, 4, 8), mlp_ratios=(4, 4, 4, 4), sr_ratios=(8, 4, 2, 1))
ARCHS['mini'] = dict(_MINI, depths=(1, 1, 2, 1))  # this project's: 1.7 million parameters, for trials on a CPU


class SpatialReductionAttention(nn.Module):
    """Attention whose keys and values are one token for each sr_ratio x sr_ratio tokens (PVT, Eqs. 1 to 3)."""

    image_area: ImageArea | None = None  # of `mask_padding`: outside of it there are no keys

    def __init__(self, dims: int, num_heads: int, sr_ratio: int, norm_cfg: Mapping[str, Any]) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.sr_ratio = sr_ratio
        self.q = nn.Linear(dims, dims)
        self.kv = nn.Linear(dims, 2 * dims)
        self.proj = nn.Linear(dims, dims)
        if sr_ratio > 1:
            self.sr = nn.Conv2d(dims, dims, kernel_size=sr_ratio, stride=sr_ratio)
            self.norm = build_norm(norm_cfg, dims)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        height, width = x.shape[1:3]
        q = rearrange(self.q(x), 'b h w (n d) -> b n (h w) d', n=self.num_heads)
        tokens = self.reduce(x)
        k, v = rearrange(self.kv(tokens), 'b h w (two n d) -> two b n (h w) d', two=2, n=self.num_heads)
        inside = None if self.image_area is None else self.image_area.inside(*tokens.shape[1:3])
        bias = hide_keys(self.bias(q, height, width), inside)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(rearrange(out, 'b n (h w) d -> b h w (n d)', h=height, w=width))

    def bias(self, q: Tensor, height: int, width: int) -> Tensor | None:
        """Bias of the logits, for queries (B, N, H * W, D); PVT has none."""
        return None

    def reduce(self, x: Tensor) -> Tensor:
        """Spatial reduction of the tokens for keys and values: (B, H, W, C) -> (B, H // sr_ratio, W // sr_ratio, C)."""
        if self.sr_ratio == 1:
            return x
        height, width = x.shape[1:3]
        x = rearrange(x, 'b h w c -> b c h w')
        if min(height, width) < self.sr_ratio:
            x = F.pad(x, (0, max(self.sr_ratio - width, 0), 0, max(self.sr_ratio - height, 0)))
        return self.norm(rearrange(self.sr(x), 'b c h w -> b h w c'))


class Stage(nn.Module):
    """Patch embedding, position embedding of `pos_shape`, height and width in tokens, and blocks of `dims` channels.

    If a class token joins in this stage, the position embedding begins with its row.
    """

    pos_mode = 'bilinear'
    image_area: ImageArea | None = None  # of `mask_padding`: the positions are those of each image

    def __init__(
        self, patch_embed: nn.Module, blocks: nn.ModuleList, pos_shape: tuple[int, int], dims: int, cls_token: bool
    ) -> None:
        super().__init__()
        self.patch_embed = patch_embed
        self.pos_embed = nn.Parameter(torch.empty(1, cls_token + pos_shape[0] * pos_shape[1], dims))
        self.cls_token = nn.Parameter(torch.empty(1, 1, dims)) if cls_token else None
        self.blocks = blocks
        self.pos_shape = pos_shape

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, C', H', W') -> (B, C, H, W), or (B, C, 1, 1 + H * W) with the class token first."""
        x = self.patch_embed(x)
        extents = None if self.image_area is None else self.image_area.extents(*x.shape[1:3])
        x = x + positions_of(self, x, extents)
        if self.cls_token is not None:
            x, valid = prepend_token(self.cls_token + self.pos_embed[:, :1], x), None  # no longer a grid
        for block in self.blocks:
            x = block(x, valid)
        return rearrange(x, 'b h w c -> b c h w')


@MODELS.register_module()
class PVT(Pyramid):
    """Pyramid Vision Transformer for detectors and classifiers.

    `Backbone` and `Pyramid` document the arguments that are not listed here.

    Args:
        arch: 'tiny', 'small', 'medium', 'large', or a dict of `embed_dims`, `depths`, `num_heads`, `mlp_ratios` and
            `sr_ratios`, each with one entry per stage. 'tiny-dtn' and so on have the heads (4, 4, 5, 8) of the DTN
            authors' code, where PVT has (1, 2, 5, 8); the DTN paper does not state them. 'mini' is this project's.
        token_norm_stages: Leading stages that use `token_norm_cfg`. None is all up to the third (DTN paper, A.1).
        norm_cfg: None is as published: LayerNorm with eps 1e-6 in blocks and at the output, and 1e-5 in patch
            embeddings and after the spatial reduction (mmdet's PVT has 1e-6 there too).
        pretrain_img_size: Side, or height and width, of the images that the position embeddings are made for, in
            pixels.
        out_type: 'featmap' returns feature maps of strides 4, 8, 16 and 32. 'cls_token' returns the class token (B, C),
            which joins in the last stage.
        init_cfg: Loads checkpoints in the layout of PVT's authors, mmdet or TokenNorm.
    """

    vector_type = 'cls_token'
    layouts = PVT_LAYOUTS
    most_token_norm_stages = 3

    def __init__(
        self,
        arch: str | Mapping[str, Sequence[int]] = 'tiny',
        in_channels: int = 3,
        token_norm_cfg: Mapping[str, Any] | None = None,
        token_norm_stages: int | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        norm_cfg: Mapping[str, Any] | None = None,
        pretrain_img_size: int | tuple[int, int] = 224,
        out_type: Literal['featmap', 'cls_token'] = 'featmap',
        **kwargs: Any,
    ) -> None:
        arch = resolve_arch('PVT', ARCHS, arch)
        num_stages = len(arch['depths'])
        embed_norm_cfg = norm_cfg or dict(type='LN', eps=1e-5)
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        super().__init__(arch, norm_cfg, token_norm_stages, token_norm_cfg, out_type=out_type, **kwargs)
        if out_type == 'cls_token' and (
            arch['sr_ratios'][-1] != 1 or (token_norm_cfg and self.token_norm_stages == num_stages)
        ):
            raise ValueError(
                "PVT: out_type='cls_token' needs sr_ratios[-1]=1 and token_norm_stages below the number of stages: "
                'the class token of the last stage has no position in a grid'
            )
        pos_shape = pair_of('PVT', pretrain_img_size, 'pretrain_img_size')
        for i, dims in enumerate(arch['embed_dims']):
            embed = dict(in_channels=in_channels, embed_dims=dims, patch_size=_PATCH_SIZES[i], norm_cfg=embed_norm_cfg)
            pos_shape = tuple(-(-side // _PATCH_SIZES[i]) for side in pos_shape)
            attention = self._attention_type(i)
            attn = partial(attention, dims, arch['num_heads'][i], arch['sr_ratios'][i], embed_norm_cfg)
            blocks = self._blocks(i, attn, partial(Mlp, dims, arch['mlp_ratios'][i]))
            patch_embed = build_stem(stem_cfg, **embed) if i == 0 else PatchEmbed(**embed)
            has_cls_token = out_type == 'cls_token' and i == num_stages - 1
            self.stages.append(Stage(patch_embed, blocks, pos_shape, dims, has_cls_token))
            in_channels = dims
        if out_type == 'cls_token':
            self.norm = build_norm(norm_cfg, in_channels)
        self._finish(self.stages)

    def _attention_type(self, stage: int) -> type[SpatialReductionAttention]:
        return SpatialReductionAttention

    def from_published(self, state_dict: StateDict) -> Converted:
        return from_published_pvt(state_dict, self.out_type)

    def _vector(self, x: Tensor) -> Tensor:
        return self.norm(rearrange(x, 'b c h w -> b h w c'))[:, 0, 0]
