"""The plain patch embedding (Dosovitskiy et al., 2020), optionally followed by a norm (PVT, Wang et al., 2021) and
with overlapping patches (PVTv2, Wang et al., 2021)."""

from collections.abc import Mapping
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from tokennorm.builder import build_norm
from tokennorm.layers.pad import pad_to_multiple


def check_sizes(owner: str, **sizes: Any) -> None:
    """Raises a ValueError unless every argument is an integer of at least 1; `kernel_size` may also be None."""
    for name, size in sizes.items():
        if not (size is None and name == 'kernel_size') and (not isinstance(size, int) or size < 1):
            raise ValueError(f'{owner}: {name}={size!r} must be an integer of at least 1')


def overlap_margin(patch_size: int, kernel_size: int | None) -> int:
    """Width of the zeros around an image for kernel_size x kernel_size windows at a stride of `patch_size`.

    It is 0 if the windows are the patches. Larger windows are centered on the first pixel of each patch, as in PVTv2,
    and every patch has one, including the last partial patches.
    """
    if kernel_size is None or kernel_size == patch_size:
        return 0
    if kernel_size < patch_size or kernel_size % 2 == 0:
        raise ValueError(f'kernel_size={kernel_size} must be patch_size={patch_size}, or odd and larger')
    return kernel_size // 2


class PatchEmbed(nn.Module):
    """A strided convolution over patches, for images of any size.

    Args:
        in_channels: Channels of the image or feature map.
        embed_dims: Channels of a token.
        patch_size: Stride between patches, in pixels.
        norm_cfg: The norm after the projection; None leaves it out.
        kernel_size: Side of the convolution, in pixels; None is `patch_size`, without overlap.
    """

    is_patch_embed = True

    def __init__(
        self,
        in_channels: int = 3,
        embed_dims: int = 768,
        patch_size: int = 16,
        norm_cfg: Mapping[str, Any] | None = None,
        kernel_size: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(
            'PatchEmbed', in_channels=in_channels, embed_dims=embed_dims, patch_size=patch_size, kernel_size=kernel_size
        )
        self.patch_size = patch_size
        margin = overlap_margin(patch_size, kernel_size)
        self.proj = nn.Conv2d(in_channels, embed_dims, kernel_size or patch_size, stride=patch_size, padding=margin)
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        x = self.proj(pad_to_multiple(x, self.patch_size))
        return self.norm(rearrange(x, 'b c h w -> b h w c'))
