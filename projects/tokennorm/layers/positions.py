"""Position embeddings of a grid and of class tokens."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def positions_of(module: Any, x: Tensor) -> Tensor:
    """A module's `pos_embed` for the grid of x (B, H, W, C), (1, H, W, C), resized from `pos_shape` by `pos_mode`.

    Its rows before those of the grid belong to a class token.
    """
    grid = module.pos_embed[:, -module.pos_shape[0] * module.pos_shape[1] :].unflatten(1, module.pos_shape)
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
