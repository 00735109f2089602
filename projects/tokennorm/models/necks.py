"""The simple feature pyramid of ViTDet (Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection",
2022, Sec. 3): all levels from the last feature map of a plain backbone."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from einops.layers.torch import Rearrange
from mmengine.model import BaseModule
from torch import Tensor, nn

from tokennorm.layers.building import build_norm
from tokennorm.layers.patch_embed import check_sizes
from tokennorm.registry import MODELS

_LAST_OWN_LEVEL = 3  # stride 32; later levels are pooled from it


@MODELS.register_module()
class SimpleFeaturePyramid(BaseModule):
    """Levels of strides 4, 8, 16, 32, 64 and so on, from one feature map of stride 16.

    The level of stride 4 is made by two transposed convolutions with a norm and a GELU between them, stride 8 by one,
    stride 32 by 2 x 2 max pooling. A 1 x 1 and a 3 x 3 convolution follow on each level, each with a norm. Levels from
    stride 64 on take every second position of the level before, as in torchvision and detectron2. Sides that 2 does not
    divide are rounded up; the authors' code requires images that 32 divides.

    Args:
        in_channels: Channels of the feature map, a multiple of 4.
        out_channels: Channels of every level.
        num_outs: Number of levels.
        start_level: The first level, as in mmdet's FPN: 0 has stride 4, 1 stride 8, 2 stride 16, 3 stride 32.
        norm_cfg: The norms. None is as published: LayerNorm over channels with eps 1e-6.
        init_cfg: As in mmengine.

    Raises:
        ValueError: for arguments out of range, and unless it gets exactly one feature map.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        num_outs: int = 5,
        start_level: int = 0,
        norm_cfg: Mapping[str, Any] | None = None,
        init_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        if not isinstance(in_channels, int) or in_channels % 4 or in_channels < 4:
            raise ValueError(f'SimpleFeaturePyramid: in_channels={in_channels} must be one integer that 4 divides')
        check_sizes('SimpleFeaturePyramid', out_channels=out_channels, num_outs=num_outs)
        if not isinstance(start_level, int) or not 0 <= start_level <= _LAST_OWN_LEVEL:
            raise ValueError(f'SimpleFeaturePyramid: start_level={start_level} must be in 0 to {_LAST_OWN_LEVEL}')
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        own_levels = range(start_level, min(start_level + num_outs, _LAST_OWN_LEVEL + 1))
        self.num_outs = num_outs
        self.levels = nn.ModuleList(_level(level, in_channels, out_channels, norm_cfg) for level in own_levels)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """((B, in_channels, H, W),) -> for each level (B, out_channels, H_i, W_i)."""
        if len(inputs) != 1:
            raise ValueError(f'SimpleFeaturePyramid takes one feature map, got {len(inputs)}')
        outs = [level(inputs[0]).contiguous() for level in self.levels]  # as backbones do, for mmcv's RoIAlign
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], kernel_size=1, stride=2))
        return tuple(outs)


def _level(level: int, in_channels: int, out_channels: int, norm_cfg: Mapping[str, Any]) -> nn.Sequential:
    """The layers from the feature map of stride 16 to the level of stride 4 * 2**level."""
    halved, quartered = in_channels // 2, in_channels // 4
    resize, channels = {
        0: (
            [
                nn.ConvTranspose2d(in_channels, halved, kernel_size=2, stride=2),
                _norm(norm_cfg, halved),
                nn.GELU(),
                nn.ConvTranspose2d(halved, quartered, kernel_size=2, stride=2),
            ],
            quartered,
        ),
        1: ([nn.ConvTranspose2d(in_channels, halved, kernel_size=2, stride=2)], halved),
        2: ([], in_channels),
        3: ([nn.MaxPool2d(kernel_size=2, stride=2, ceil_mode=True)], in_channels),
    }[level]
    return nn.Sequential(
        *resize,
        nn.Conv2d(channels, out_channels, kernel_size=1, bias=False),
        _norm(norm_cfg, out_channels),
        nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
        _norm(norm_cfg, out_channels),
    )


def _norm(norm_cfg: Mapping[str, Any], channels: int) -> nn.Sequential:
    """A norm of token grids, applied to a feature map (B, C, H, W)."""
    return nn.Sequential(
        Rearrange('b c h w -> b h w c'), build_norm(norm_cfg, channels), _ToFeatureMap('b h w c -> b c h w')
    )


class _ToFeatureMap(Rearrange):
    """Contiguous in an export: a convolution after channels last would fix the graph to sides of several positions."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, C, H, W)."""
        x = super().forward(x)
        return x.contiguous() if torch.compiler.is_compiling() else x
