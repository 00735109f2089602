"""Resizes position embeddings and bias tables of a checkpoint to the sizes of a model."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.layers.positions import resize_positions


def resize_bias_table(table: Tensor, window: int) -> Tensor:
    """Resizes Swin's relative position biases, ((2w - 1)^2, heads), for a window of another side, in tokens.

    By bicubic interpolation in float32, as Swin's authors, mmdet and timm's `resize_rel_pos_bias_table_simple`. A table
    that does not belong to a square window raises `ValueError`.
    """
    side, new_side = math.isqrt(len(table)), 2 * window - 1
    if side**2 != len(table) or side % 2 == 0:
        raise ValueError(
            f'a bias table of {len(table)} rows does not belong to a square window, which has (2w - 1)^2 rows'
        )
    if side == new_side:
        return table
    resized = rearrange(table.float(), '(h w) n -> 1 n h w', h=side)
    resized = F.interpolate(resized, size=(new_side, new_side), mode='bicubic')
    return rearrange(resized, '1 n h w -> (h w) n').to(table.dtype)


def resize_tables(state_dict: dict[str, Tensor], model: nn.Module) -> list[str]:
    """Resizes the position embeddings and bias tables of a state dict to the model's sizes, and returns their keys.

    A position embedding is resized if its grid is square, and if model and state dict agree on the class token's row.
    Modules with `pos_embed` have `pos_shape` and `pos_mode`; modules with a bias table have `window`.
    """
    resized = {}
    for name, module in model.named_modules():
        prefix = f'{name}.' if name else ''
        if (key := f'{prefix}relative_position_bias_table') in state_dict and hasattr(module, 'window'):
            resized[key] = resize_bias_table(state_dict[key], module.window)
        if (key := f'{prefix}pos_embed') in state_dict and hasattr(module, 'pos_shape'):
            resized[key] = _resize_rows(state_dict[key], module.pos_embed.shape[1], module.pos_shape, module.pos_mode)
    changed = [key for key, value in resized.items() if value is not state_dict[key]]
    state_dict.update(resized)
    return changed


def _resize_rows(positions: Tensor, num_rows: int, shape: tuple[int, int], mode: str) -> Tensor:
    """(1, rows, C) to (1, `num_rows`, C), of which the last `shape[0] * shape[1]` rows are the grid."""
    tokens = num_rows - shape[0] * shape[1]
    side = math.isqrt(max(positions.shape[1] - tokens, 0))
    if positions.shape[1] == num_rows or side**2 + tokens != positions.shape[1]:
        return positions
    grid = resize_positions(positions[:, tokens:].unflatten(1, (side, side)), shape, mode)
    return torch.cat([positions[:, :tokens], grid.flatten(1, 2)], dim=1)
