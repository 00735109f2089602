"""Stems with patch statistics, which the study compares with Dual PatchNorm."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.registry import MODELS

# Added to the deviation of a patch before the logarithm, in units of the data preprocessor's output.
DEVIATION_EPS = 0.05


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

    def __init__(self, in_channels: int = 3, embed_dims: int = 768, patch_size: int = 16, **kwargs: Any) -> None:
        super().__init__(in_channels=in_channels, embed_dims=embed_dims, patch_size=patch_size, **kwargs)
        self.patch_size = patch_size
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
