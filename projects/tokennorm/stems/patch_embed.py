"""The plain patch embedding (Dosovitskiy et al., 2020; with a norm behind it Wang et al., 2021, PVT)."""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.builder import build_norm
from tokennorm.registry import MODELS


def pad_to_multiple(x: Tensor, size: int) -> Tensor:
    """Zeros at the right and the bottom until `size` divides both sides of (B, C, H, W): mmdet's 'corner' padding."""
    height, width = x.shape[-2:]
    return F.pad(x, (0, -width % size, 0, -height % size))


@MODELS.register_module()
class PatchEmbed(nn.Module):
    """A strided convolution over non-overlapping patches, for images of any size.

    Args:
        in_channels: Channels of the image or feature map.
        embed_dims: Channels of a token.
        patch_size: Side of a patch, in pixels.
        norm_cfg: The norm behind the projection; None for none.
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
        self.proj = nn.Conv2d(in_channels, embed_dims, kernel_size=patch_size, stride=patch_size)
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        x = self.proj(pad_to_multiple(x, self.patch_size))
        return self.norm(rearrange(x, 'b c h w -> b h w c'))
