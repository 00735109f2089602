"""Learned position embeddings of a ViT for another grid than theirs."""

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def resize_positions(positions: Tensor, shape: tuple[int, int]) -> Tensor:
    """Bicubic with antialiasing, in float32: as timm, where mmpretrain and ViTDet's authors have no antialiasing.

    Args:
        positions: Embeddings of a grid, (1, h, w, C).
        shape: Height and width H x W of the grid that they are for.

    Returns:
        (1, H, W, C) of the same dtype; `positions` itself where the grid is theirs.
    """
    if tuple(positions.shape[1:3]) == tuple(shape):
        return positions
    resized = rearrange(positions.float(), 'b h w c -> b c h w')
    resized = F.interpolate(resized, size=shape, mode='bicubic', antialias=True)
    return rearrange(resized, 'b c h w -> b h w c').to(positions.dtype)
