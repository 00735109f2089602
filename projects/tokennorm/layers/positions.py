"""Position embeddings of another grid."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


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
