"""A state dict's position embeddings and bias tables at the sizes that the model has."""

import math

import torch
from torch import Tensor, nn

from tokennorm.checkpoints.bias_tables import resize_bias_table
from tokennorm.checkpoints.position_embeddings import resize_positions


def resize_tables(state_dict: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Resizes what a model has learned for a grid or a window of one size, and leaves all else.

    Positions are resized where they are of a square grid and the model's class token, if it has one there, is in both.

    Args:
        state_dict: With our keys. It is not changed.
        model: Its modules with `pos_embed` have `pos_shape` and `pos_mode`, those with a bias table have `window`.

    Returns:
        A new dict.
    """
    resized = dict(state_dict)
    for name, module in model.named_modules():
        prefix = f'{name}.' if name else ''
        if (key := f'{prefix}relative_position_bias_table') in state_dict and hasattr(module, 'window'):
            resized[key] = resize_bias_table(state_dict[key], module.window)
        if (key := f'{prefix}pos_embed') in state_dict and hasattr(module, 'pos_shape'):
            resized[key] = _resize_rows(state_dict[key], module.pos_embed.shape[1], module.pos_shape, module.pos_mode)
    return resized


def _resize_rows(positions: Tensor, num_rows: int, shape: tuple[int, int], mode: str) -> Tensor:
    """(1, rows, C) to (1, `num_rows`, C), of which the last `shape[0] * shape[1]` are the grid."""
    tokens = num_rows - shape[0] * shape[1]
    side = math.isqrt(max(positions.shape[1] - tokens, 0))
    if positions.shape[1] == num_rows or side**2 + tokens != positions.shape[1]:
        return positions
    grid = resize_positions(positions[:, tokens:].unflatten(1, (side, side)), shape, mode)
    return torch.cat([positions[:, :tokens], grid.flatten(1, 2)], dim=1)
