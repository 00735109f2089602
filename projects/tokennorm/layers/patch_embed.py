"""The plain patch embedding (Dosovitskiy et al., 2020), optionally followed by a norm (PVT, Wang et al., 2021) and
with overlapping patches (PVTv2, Wang et al., 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from tokennorm.layers.building import build_norm
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.layers.patch_statistics import PatchStatistics, patches_of


def check_sizes(owner: str, **sizes: Any) -> None:
    """Raises a ValueError unless every argument is an integer of at least 1; `kernel_size` may also be None."""
    for name, size in sizes.items():
        if not (size is None and name == 'kernel_size') and (not isinstance(size, int) or size < 1):
            raise ValueError(f'{owner}: {name}={size!r} must be an integer of at least 1')


def pair_of(owner: str, value: int | Sequence[int], name: str = 'patch_size') -> tuple[int, int]:
    """Height and width of an argument that is one side, or both; raises a ValueError for anything else."""
    sides = (value, value) if isinstance(value, int) else value
    if not isinstance(sides, list | tuple) or len(sides) != 2 or not all(isinstance(s, int) and s > 0 for s in sides):
        raise ValueError(f'{owner}: {name}={value!r} must be an integer of at least 1, or (height, width)')
    return sides[0], sides[1]


def windows_of(
    owner: str, patch_size: int | Sequence[int], kernel_size: int | None
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Stride and window (height, width) of a patch embedding, and the width of the zeros around its image, in pixels.

    The windows are the patches if `kernel_size` is None. Larger windows are centered on the first pixel of each patch,
    as in PVTv2, and every patch has one, including the last partial patches.
    """
    stride = pair_of(owner, patch_size)
    if kernel_size is None or (kernel_size, kernel_size) == stride:
        return stride, stride, 0
    if kernel_size < max(stride) or kernel_size % 2 == 0:
        side = stride[0] if stride[0] == stride[1] else stride
        raise ValueError(f'kernel_size={kernel_size} must be patch_size={side}, or odd and larger')
    return stride, (kernel_size, kernel_size), kernel_size // 2


class PatchEmbed(nn.Module):
    """A strided convolution over patches, for images of any size.

    Args:
        in_channels: Channels of the image or feature map.
        embed_dims: Channels of a token.
        patch_size: Stride between patches, in pixels: one number, or one for the height and one for the width.
        norm_cfg: The norm after the projection; None leaves it out.
        kernel_size: Side of the convolution, in pixels; None is `patch_size`, without overlap.
        statistics: Whether to add, before the norm, a linear layer of each patch's mean in each channel and of
            log(its deviation + 0.05). An option of this project (docs/concepts/dpn.md).
    """

    is_patch_embed = True

    def __init__(
        self,
        in_channels: int = 3,
        embed_dims: int = 768,
        patch_size: int | Sequence[int] = 16,
        norm_cfg: Mapping[str, Any] | None = None,
        kernel_size: int | None = None,
        statistics: bool = False,
    ) -> None:
        super().__init__()
        check_sizes('PatchEmbed', in_channels=in_channels, embed_dims=embed_dims, kernel_size=kernel_size)
        self.patch_size, self.window, self.margin = windows_of('PatchEmbed', patch_size, kernel_size)
        self.proj = nn.Conv2d(in_channels, embed_dims, self.window, stride=self.patch_size, padding=self.margin)
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()
        self.statistics = PatchStatistics(in_channels, embed_dims) if statistics else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / ph), ceil(W / pw), embed_dims) for patches of ph x pw pixels."""
        x = pad_to_multiple(x, self.patch_size)
        tokens = rearrange(self.proj(x), 'b c h w -> b h w c')
        if self.statistics is not None:
            tokens = tokens + self.statistics(patches_of(x, self.window, self.patch_size, self.margin))
        return self.norm(tokens)
