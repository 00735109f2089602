"""Learned relative position biases of Swin for another window than theirs."""

import math

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def resize_bias_table(table: Tensor, window: int) -> Tensor:
    """Bicubic, in float32: as Swin's authors, mmdet and `resize_rel_pos_bias_table_simple` of timm.

    Args:
        table: A bias for each offset in a window of w x w tokens, row by row, and head: ((2w - 1)^2, heads).
        window: Side W of the window that they are for, in tokens.

    Returns:
        ((2W - 1)^2, heads) of the same dtype; `table` itself where the window is its own.

    Raises:
        ValueError: for a table that is of no square window.
    """
    side, new_side = math.isqrt(len(table)), 2 * window - 1
    if side**2 != len(table) or side % 2 == 0:
        raise ValueError(f'a bias table of {len(table)} rows is of no square window')
    if side == new_side:
        return table
    resized = rearrange(table.float(), '(h w) n -> 1 n h w', h=side)
    resized = F.interpolate(resized, size=(new_side, new_side), mode='bicubic')
    return rearrange(resized, '1 n h w -> (h w) n').to(table.dtype)
