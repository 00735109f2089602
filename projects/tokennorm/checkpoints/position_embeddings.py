"""Learned position embeddings for another grid than theirs."""

from typing import Literal

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def resize_positions(
    positions: Tensor, shape: tuple[int, int], mode: Literal['bicubic', 'bilinear'] = 'bicubic'
) -> Tensor:
    """In float32, by the method of the model that they are of.

    Args:
        positions: Embeddings of a grid, (1, h, w, C).
        shape: Height and width H x W of the grid that they are for.
        mode: 'bicubic', for ViT, has antialiasing: as timm, where mmpretrain and ViTDet's authors have none.
            'bilinear', for PVT, has none: as its authors and mmdet.

    Returns:
        (1, H, W, C) of the same dtype; `positions` itself where the grid is theirs.
    """
    if tuple(positions.shape[1:3]) == tuple(shape):
        return positions
    resized = rearrange(positions.float(), 'b h w c -> b c h w')
    resized = F.interpolate(resized, size=shape, mode=mode, antialias=mode == 'bicubic')
    return rearrange(resized, 'b c h w -> b h w c').to(positions.dtype)
