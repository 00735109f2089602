"""Zero padding to whole patches or windows."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pad_to_multiple(x: Tensor, size: int, channels_last: bool = False) -> Tensor:
    """Adds zeros at the right and the bottom until `size` divides height and width: mmdet's 'corner' padding.

    Args:
        x: Feature maps (B, C, H, W), or token grids (B, H, W, C) with `channels_last`.
        size: Divisor of both sides.
        channels_last: Layout of x.
    """
    height, width = x.shape[1:3] if channels_last else x.shape[-2:]
    # F.pad would copy. An exported graph must not depend on the sides of its example.
    if not torch.compiler.is_exporting() and height % size == 0 and width % size == 0:
        return x
    padding = (0, -width % size, 0, -height % size)
    return F.pad(x, (0, 0, *padding) if channels_last else padding)
