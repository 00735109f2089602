"""Candidates that the study compares with DTN and Dual PatchNorm: a local norm, and stems with patch statistics."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.norms import LayerNorm
from tokennorm.registry import MODELS

# Added to the deviation of a patch before the logarithm, in units of the data preprocessor's output.
DEVIATION_EPS = 0.05


@MODELS.register_module()
class LocalLayerNorm(LayerNorm):
    """LayerNorm plus a depthwise 3 x 3 convolution of its output. Zero at initialization: then exactly LayerNorm.

    Attributes:
        depthwise: Kernels (C, 1, 3, 3).
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps)
        self.depthwise = nn.Parameter(torch.zeros(num_features, 1, 3, 3))

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). Tokens outside `valid` count as zeros, like those outside the grid."""
        y = super().forward(x)
        inner = y if valid is None else y * _mask(valid, *y.shape[1:3])
        local = F.conv2d(rearrange(inner, 'b h w c -> b c h w'), self.depthwise, padding=1, groups=y.shape[-1])
        return y + rearrange(local, 'b c h w -> b h w c')


def _mask(valid: Tensor, height: int, width: int) -> Tensor:
    """Returns bool (B, height, width, 1): whether a token is image."""
    rows = torch.arange(height, device=valid.device) < valid[:, :1]
    columns = torch.arange(width, device=valid.device) < valid[:, 1:]
    return (rows[:, :, None] & columns[:, None])[..., None]


def patch_statistics(x: Tensor, patch_size: int) -> Tensor:
    """(B, C, H, W) -> (B, H / p, W / p, C + 1): mean of each color and log deviation of each patch.

    They are what the first norm of Dual PatchNorm removes.
    """
    patches = rearrange(
        pad_to_multiple(x, patch_size), 'b c (h ph) (w pw) -> b h w c (ph pw)', ph=patch_size, pw=patch_size
    )
    deviation = patches.flatten(3).std(-1, keepdim=True, unbiased=False)
    return torch.cat([patches.mean(-1), torch.log(deviation + DEVIATION_EPS)], dim=-1)


class _WithStatistics:
    """Adds a linear layer of the patch statistics to the projection of a stem, before the norm that follows it."""

    def __init__(self, in_channels: int = 3, embed_dims: int = 768, **kwargs: Any) -> None:
        super().__init__(in_channels=in_channels, embed_dims=embed_dims, **kwargs)
        self.statistics = nn.Linear(in_channels + 1, embed_dims)
        nn.init.trunc_normal_(self.statistics.weight, std=0.02)
        nn.init.zeros_(self.statistics.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        norm, self.norm = self.norm, nn.Identity()
        try:
            projected = super().forward(x)
        finally:
            self.norm = norm
        return norm(projected + self.statistics(patch_statistics(x, self.patch_size)))


@MODELS.register_module()
class PatchEmbedWithStatistics(_WithStatistics, PatchEmbed):
    """`PatchEmbed` with `patch_statistics`."""


@MODELS.register_module()
class DualPatchEmbedWithStatistics(_WithStatistics, DualPatchEmbed):
    """`DualPatchEmbed` with `patch_statistics`."""
