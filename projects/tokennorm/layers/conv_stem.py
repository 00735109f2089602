"""The convolutional stem (Xiao et al., "Early Convolutions Help Transformers See Better", 2021, arXiv 2106.14881)."""

from collections.abc import Mapping
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from tokennorm.layers.building import build_norm
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.layers.patch_embed import check_sizes


class ConvStem(nn.Module):
    """3 x 3 convolutions of stride 2, each with batch normalization and ReLU, and a 1 x 1 convolution.

    The widths double up to `embed_dims`: 48, 96, 192 and 384 channels in ViT-S, whose patches of 16 pixels take four
    convolutions. (The paper's two larger models have six narrower ones.) It is a control of `DualPatchEmbed`: a better
    stem without a norm of pixels. The paper leaves out one transformer block to keep the FLOPs; `arch` can do that.

    Args:
        in_channels: Channels of the image.
        embed_dims: Channels of a token.
        patch_size: Stride between tokens, in pixels: a power of 2.
        norm_cfg: The norm after the last convolution; None leaves it out, as in the paper.
        kernel_size: Unused; keeps the signature of stems.

    Raises:
        ValueError: for sizes that are not positive integers, a `patch_size` that is not a power of 2, and an
            `embed_dims` that the widths do not divide.
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
        check_sizes('ConvStem', in_channels=in_channels, embed_dims=embed_dims, patch_size=patch_size)
        steps = patch_size.bit_length() - 1
        if patch_size != 2**steps or steps == 0 or embed_dims % 2 ** (steps - 1):
            raise ValueError(
                f'ConvStem: patch_size={patch_size} must be a power of 2, and half of it divide embed_dims={embed_dims}'
            )
        self.patch_size = patch_size
        self.convs = nn.Sequential()
        for step in range(steps):
            width = embed_dims // 2 ** (steps - 1 - step)
            conv = nn.Conv2d(in_channels, width, kernel_size=3, stride=2, padding=1, bias=False)
            self.convs.extend([conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)])
            in_channels = width
        self.proj = nn.Conv2d(embed_dims, embed_dims, kernel_size=1)
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        x = self.proj(self.convs(pad_to_multiple(x, self.patch_size)))
        return self.norm(rearrange(x, 'b c h w -> b h w c'))
