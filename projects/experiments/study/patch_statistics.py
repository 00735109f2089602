"""Stems with patch statistics, which the study compares with Dual PatchNorm."""

from typing import Any

from einops import rearrange
from torch import Tensor

from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.layers.dual_patch_embed import PatchStatistics
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.registry import MODELS


@MODELS.register_module()
class PatchEmbedWithStatistics(PatchEmbed):
    """`PatchEmbed` and `PatchStatistics`, before the norm that follows."""

    def __init__(self, in_channels: int = 3, embed_dims: int = 768, **kwargs: Any) -> None:
        super().__init__(in_channels=in_channels, embed_dims=embed_dims, **kwargs)
        self.statistics = PatchStatistics(in_channels, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        x, p = pad_to_multiple(x, self.patch_size), self.patch_size
        patches = rearrange(x, 'b c (h ph) (w pw) -> b h w (ph pw c)', ph=p, pw=p)
        projected = rearrange(self.proj(x), 'b c h w -> b h w c')
        return self.norm(projected + self.statistics(patches))


@MODELS.register_module()
class DualPatchEmbedWithStatistics(DualPatchEmbed):
    """`DualPatchEmbed(statistics=True)` under the name that the finished runs have."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, statistics=True)
