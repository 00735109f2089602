"""A TokenNorm stem that replaces a convolution, in the patch embedding of a third-party model."""

from einops import rearrange
from torch import Tensor, nn


class StemProjection(nn.Module):
    """A TokenNorm stem that replaces the convolution of a patch embedding. Like it, it drops pixels that fill no patch.

    Args:
        stem: The stem, from images (B, C, H, W) to grids (B, H / p, W / p, D).
        patch_size: p, in pixels.
        overlaps: Whether the patches overlap; the stem then pads the image itself.
    """

    def __init__(self, stem: nn.Module, patch_size: int, overlaps: bool) -> None:
        super().__init__()
        self.stem = stem
        self.patch_size = patch_size
        self.overlaps = overlaps

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, H / p, W / p)."""
        if not self.overlaps:
            height, width = (side // self.patch_size * self.patch_size for side in x.shape[-2:])
            x = x[..., :height, :width]
        return rearrange(self.stem(x), 'b h w d -> b d h w')
