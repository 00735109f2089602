"""Dual PatchNorm (Kumar, Dehghani, Houlsby, 2023): a LayerNorm before and one after the patch embedding."""

from collections.abc import Mapping
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from tokennorm.builder import build_norm
from tokennorm.registry import MODELS
from tokennorm.stems.patch_embed import pad_to_multiple


@MODELS.register_module()
class DualPatchEmbed(nn.Module):
    """x = LN(Linear(LN(patches))), for images of any size.

    Each patch is flattened in the order (ph, pw, C) of the paper. In hosts whose stem already ends in a LayerNorm (PVT,
    Swin) it stands for that whole stem: one norm is added in front, none behind. Position embeddings come after it.

    Args:
        in_channels: Channels of the image.
        embed_dims: Channels of a token.
        patch_size: Side of a patch, in pixels.
        norm_cfg: The type of both norms; None is LayerNorm with the eps of 1e-6 of the paper's framework.
    """

    def __init__(
        self,
        in_channels: int = 3,
        embed_dims: int = 768,
        patch_size: int = 16,
        norm_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        patch_dims = patch_size * patch_size * in_channels
        self.patch_norm = build_norm(norm_cfg, patch_dims)
        self.proj = nn.Linear(patch_dims, embed_dims)
        self.norm = build_norm(norm_cfg, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        x = pad_to_multiple(x, self.patch_size)
        x = rearrange(x, 'b c (h ph) (w pw) -> b h w (ph pw c)', ph=self.patch_size, pw=self.patch_size)
        return self.norm(self.proj(self.patch_norm(x)))
