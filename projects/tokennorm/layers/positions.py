"""Position embeddings of a grid and of class tokens."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def positions_of(module: Any, x: Tensor, extents: Tensor | None = None) -> Tensor:
    """A module's `pos_embed` for the grid of x (B, H, W, C), (1, H, W, C), resized from `pos_shape` by `pos_mode`.

    With the rows and columns that are image, int (B, 2), each image has the positions of a grid of this size, and the
    result is (B, H, W, C). Its rows before those of the grid belong to a class token.
    """
    grid = module.pos_embed[:, -module.pos_shape[0] * module.pos_shape[1] :].unflatten(1, module.pos_shape)
    if extents is not None:
        return resize_to_extents(grid, (x.shape[1], x.shape[2]), extents, module.pos_mode)
    return resize_positions(grid, (x.shape[1], x.shape[2]), module.pos_mode)


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """(1, 1, C) and (B, H, W, C) -> (B, 1, 1 + H * W, C)."""
    return torch.cat([token.expand(x.shape[0], -1, -1), x.flatten(1, 2)], dim=1)[:, None]


def resize_positions(positions: Tensor, shape: tuple[int, int], mode: str = 'bicubic') -> Tensor:
    """Resizes position embeddings (1, h, w, C) to a grid of another shape, (1, H, W, C), in float32.

    'bicubic', for ViT, is with antialiasing: as timm does; mmpretrain and ViTDet's authors use none. 'bilinear', for
    PVT, is without: as its authors and mmdet do.
    """
    # A comparison would fix the sides of an exported graph. Resizing to the same size changes nothing.
    if not torch.compiler.is_exporting() and tuple(positions.shape[1:3]) == tuple(shape):
        return positions
    resized = rearrange(positions.float(), 'b h w c -> b c h w')
    resized = F.interpolate(resized, size=shape, mode=mode, antialias=mode == 'bicubic')
    return rearrange(resized, 'b c h w -> b h w c').to(positions.dtype)


def resize_to_extents(positions: Tensor, shape: tuple[int, int], extents: Tensor, mode: str) -> Tensor:
    """Resizes position embeddings (1, h, w, C) to the extents of each image, int (B, 2), within a grid: (B, H, W, C).

    The modes are those of `resize_positions`. Beyond an image the last row and column are repeated.
    """
    weights_of = dict(bicubic=_bicubic_weights, bilinear=_bilinear_weights)[mode]
    rows, columns = (
        weights_of(old, torch.arange(new, device=extent.device).minimum(extent[:, None] - 1), old / extent[:, None])
        for old, new, extent in zip(positions.shape[1:3], shape, extents.unbind(1), strict=True)
    )
    resized = torch.einsum('byi, ijc -> byjc', rows, positions[0].float())
    return torch.einsum('bxj, byjc -> byxc', columns, resized).to(positions.dtype)


def _bilinear_weights(old: int, places: Tensor, scale: Tensor) -> Tensor:
    """Weights of `old` values at places (B, N), which are `scale` (B, 1) of them apart: (B, N, old)."""
    at = ((places + 0.5) * scale - 0.5).clamp(0, old - 1)
    return (1 - (at[..., None] - torch.arange(old, device=at.device)).abs()).clamp(min=0)


def _bicubic_weights(old: int, places: Tensor, scale: Tensor) -> Tensor:
    """The same with Keys' kernel (a = -0.5), widened for antialiasing where there are fewer places than values."""
    at = (places + 0.5) * scale - 0.5
    t = ((at[..., None] - torch.arange(old, device=at.device)) / scale.clamp(min=1)[..., None]).abs()
    near, far = (1.5 * t - 2.5) * t * t + 1, ((-0.5 * t + 2.5) * t - 4) * t + 2
    weights = torch.where(t < 1, near, torch.where(t < 2, far, 0))
    return weights / weights.sum(-1, keepdim=True)
