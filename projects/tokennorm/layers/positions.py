"""Position embeddings of another grid."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def resize_positions(positions: Tensor, shape: tuple[int, int], mode: str = 'bicubic') -> Tensor:
    """Resizes position embeddings in float32, by the method of the model that they belong to.

    Args:
        positions: Embeddings of a grid, (1, h, w, C).
        shape: Height and width H x W of the new grid.
        mode: 'bicubic', for ViT, with antialiasing: as timm does; mmpretrain and ViTDet's authors use none.
            'bilinear', for PVT, without antialiasing: as its authors and mmdet do.

    Returns:
        (1, H, W, C) of the same dtype; `positions` itself if the grid already has this shape.
    """
    # A comparison would fix the sides of an exported graph. Resizing to the same size changes nothing.
    if not torch.compiler.is_exporting() and tuple(positions.shape[1:3]) == tuple(shape):
        return positions
    resized = rearrange(positions.float(), 'b h w c -> b c h w')
    resized = F.interpolate(resized, size=shape, mode=mode, antialias=mode == 'bicubic')
    return rearrange(resized, 'b c h w -> b h w c').to(positions.dtype)
