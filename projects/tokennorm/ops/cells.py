"""Token grids and their cells of pool x pool tokens (Shao et al., "Dynamic Token Normalization", B.1).

Letters of the shapes: B batch, H x W grid, C channels, h x w the grid of cells, the last of which may be partial.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def average(x: Tensor, pool: int) -> Tensor:
    """Means over pool x pool cells, (B, H, W, C) -> (B, h, w, C). Partial cells average what they have."""
    if pool == 1:
        return x
    cells = F.avg_pool2d(x.permute(0, 3, 1, 2), pool, ceil_mode=True, count_include_pad=False)
    return cells.permute(0, 2, 3, 1).contiguous()


def sum_cells(x: Tensor, pool: int) -> Tensor:
    """Sums over pool x pool cells, (B, H, W, C) -> (B, h, w, C)."""
    if pool == 1:
        return x
    cells = F.avg_pool2d(x.permute(0, 3, 1, 2), pool, ceil_mode=True, divisor_override=1)
    return cells.permute(0, 2, 3, 1).contiguous()


def tokens_a_cell(x: Tensor, pool: int) -> Tensor:
    """How many tokens of (B, H, W, C) each cell has, (h, w, 1)."""
    rows, columns = (
        (size - pool * torch.arange(-(-size // pool), device=x.device)).clamp_(max=pool) for size in x.shape[1:3]
    )
    return (rows[:, None] * columns)[..., None]


def blocks(x: Tensor, pool: int) -> Tensor:
    """(B, H, W, C) -> (B, h, pool, w, pool, C), a view, where pool divides the sides, else x itself."""
    if pool == 1 or x.shape[1] % pool or x.shape[2] % pool:
        return x
    return x.unflatten(2, (-1, pool)).unflatten(1, (-1, pool))


def spread(cells: Tensor, pool: int, tokens: Tensor) -> Tensor:
    """Cells (B, h, w, C) in the shape that adds to `blocks(tokens, pool)`: each repeated pool x pool times."""
    height, width = tokens.shape[1:3]
    if pool == 1:
        return cells
    if height % pool == 0 and width % pool == 0:
        return cells[:, :, None, :, None]
    cells = cells.repeat_interleave(pool, dim=1)[:, :height]
    return cells.repeat_interleave(pool, dim=2)[:, :, :width]
