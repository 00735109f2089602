"""PVTv2 (Wang et al., "PVT v2: Improved Baselines with Pyramid Vision Transformer", 2021), with Dynamic Token
Normalization and Dual PatchNorm as options.

With `token_norm_cfg=None` and `stem_cfg=None` it is the published detection backbone (`out_type='featmap'`) or
classifier (`out_type='avg_featmap'`, without its linear head), at every image size: feature maps have
ceil(side / stride) tokens per side there too. Feature maps smaller than the spatial reduction, which the published code
rejects, are padded to one key.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.backbones.base import Pyramid, resolve_arch
from tokennorm.backbones.pvt import SpatialReductionAttention
from tokennorm.checkpoints.layouts import Converted, StateDict
from tokennorm.checkpoints.pvt import PVT_V2_LAYOUTS, from_published_pvt_v2
from tokennorm.layers import PatchEmbed, build_stem
from tokennorm.layers.block import hidden_dims
from tokennorm.layers.building import build_norm
from tokennorm.registry import MODELS

_KERNEL_SIZES, _PATCH_SIZES = (7, 3, 3, 3), (4, 2, 2, 2)
_WIDTHS = dict(embed_dims=(64, 128, 320, 512), num_heads=(1, 2, 5, 8), mlp_ratios=(8, 8, 4, 4), sr_ratios=(8, 4, 2, 1))
ARCHS: dict[str, dict[str, Any]] = {
    'b0': dict(_WIDTHS, depths=(2, 2, 2, 2), embed_dims=(32, 64, 160, 256)),
    'b1': dict(_WIDTHS, depths=(2, 2, 2, 2)),
    'b2': dict(_WIDTHS, depths=(3, 4, 6, 3)),
    'b2-li': dict(_WIDTHS, depths=(3, 4, 6, 3), linear=True),
    'b3': dict(_WIDTHS, depths=(3, 4, 18, 3)),
    'b4': dict(_WIDTHS, depths=(3, 8, 27, 3)),
    'b5': dict(_WIDTHS, depths=(3, 6, 40, 3), mlp_ratios=(4, 4, 4, 4)),
}


class LinearSpatialReductionAttention(SpatialReductionAttention):
    """Attention whose keys and values are averages over a 7 x 7 grid (PVTv2, Sec. 3.2): linear in the tokens.

    `sr_ratio` is unused; it keeps the signature of `SpatialReductionAttention`.
    """

    def __init__(self, dims: int, num_heads: int, sr_ratio: int, norm_cfg: Mapping[str, Any]) -> None:
        super().__init__(dims, num_heads, sr_ratio=1, norm_cfg=norm_cfg)
        self.sr = nn.Conv2d(dims, dims, kernel_size=1)
        self.norm = build_norm(norm_cfg, dims)

    def reduce(self, x: Tensor) -> Tensor:
        """Spatial reduction of the tokens for keys and values: (B, H, W, C) -> (B, 7, 7, C)."""
        x = self.sr(F.adaptive_avg_pool2d(rearrange(x, 'b h w c -> b c h w'), 7))
        return F.gelu(self.norm(rearrange(x, 'b c h w -> b h w c')))


class ConvMlp(nn.Module):
    """Linear, depthwise 3 x 3 convolution, GELU, linear (PVTv2, Sec. 3.3): the convolution encodes positions.

    `first_act` is the class of the activation between the first linear layer and the convolution.
    """

    def __init__(self, dims: int, mlp_ratio: float, first_act: type[nn.Module]) -> None:
        super().__init__()
        hidden = hidden_dims(dims, mlp_ratio)
        self.fc1 = nn.Linear(dims, hidden)
        self.first_act = first_act()
        self.dwconv = nn.Conv2d(hidden, hidden, kernel_size=3, padding=1, groups=hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dims)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        x = self.dwconv(rearrange(self.first_act(self.fc1(x)), 'b h w c -> b c h w'))
        return self.fc2(self.act(rearrange(x, 'b c h w -> b h w c')))


class Stage(nn.Module):
    """Patch embedding, blocks and a norm. The next stage continues from the normalized feature map."""

    def __init__(self, patch_embed: nn.Module, blocks: nn.ModuleList, norm: nn.Module) -> None:
        super().__init__()
        self.patch_embed = patch_embed
        self.blocks = blocks
        self.norm = norm

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, C', H', W') -> (B, C, H, W)."""
        x = self.patch_embed(x)
        for block in self.blocks:
            x = block(x, valid)
        return rearrange(self.norm(x, valid), 'b h w c -> b c h w')


@MODELS.register_module()
class PVTv2(Pyramid):
    """PVTv2 for detectors and classifiers.

    `Backbone` and `Pyramid` document the arguments that are not listed here.

    Args:
        arch: 'b0' to 'b5', 'b2-li', or a dict of `embed_dims`, `depths`, `num_heads`, `mlp_ratios` and `sr_ratios`,
            each with one entry per stage. With `linear=True` in it, as in 'b2-li', keys are averages over a 7 x 7 grid,
            whatever the `sr_ratios`.
        token_norm_stages: Leading stages that use `token_norm_cfg`. None is all: PVTv2 has no class token, which keeps
            DTN out of the last stage of PVT (DTN paper, A.1; the paper does not mention PVTv2 there).
        stem_cfg: The plain and the Dual PatchNorm stem both use windows of 7 x 7 at a stride of 4.
        norm_cfg: None is as published: LayerNorm with eps 1e-6 in blocks and after stages, and 1e-5 in patch embeddings
            and after the spatial reduction (mmdet's PVTv2 has 1e-6 there too).
        out_type: 'featmap' returns feature maps of strides 4, 8, 16 and 32. 'avg_featmap' returns the mean of the last
            one, (B, C).
        init_cfg: Loads checkpoints in the layout of PVTv2's authors, timm, mmdet or TokenNorm.
    """

    vector_type = 'avg_featmap'
    layouts = PVT_V2_LAYOUTS

    def __init__(
        self,
        arch: str | Mapping[str, Any] = 'b1',
        in_channels: int = 3,
        token_norm_stages: int | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        norm_cfg: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        arch = resolve_arch('PVTv2', ARCHS, arch, linear=False)
        embed_norm_cfg = norm_cfg or dict(type='LN', eps=1e-5)
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        super().__init__(arch, norm_cfg, token_norm_stages, **kwargs)
        attention, first_act = (
            (LinearSpatialReductionAttention, nn.ReLU) if arch['linear'] else (SpatialReductionAttention, nn.Identity)
        )
        for i, dims in enumerate(self.embed_dims):
            embed = dict(in_channels=in_channels, embed_dims=dims, patch_size=_PATCH_SIZES[i], norm_cfg=embed_norm_cfg)
            embed['kernel_size'] = _KERNEL_SIZES[i]
            attn = partial(attention, dims, arch['num_heads'][i], arch['sr_ratios'][i], embed_norm_cfg)
            blocks = self._blocks(i, attn, partial(ConvMlp, dims, arch['mlp_ratios'][i], first_act))
            patch_embed = build_stem(stem_cfg, **embed) if i == 0 else PatchEmbed(**embed)
            self.stages.append(Stage(patch_embed, blocks, build_norm(norm_cfg, dims)))
            in_channels = dims
        self._finish(self.stages)

    def reset_parameters(self) -> None:
        """Published initialization: linear layers truncated normal, std 0.02; convolutions normal by fan-out."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                fan_out = module.weight[:, 0].numel() // module.groups
                nn.init.normal_(module.weight, std=(2 / fan_out) ** 0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def from_published(self, state_dict: StateDict) -> Converted:
        return from_published_pvt_v2(state_dict)
