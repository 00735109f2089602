"""Rows of P, the positional weights of Eq. 6 (DTN paper, Figs. 7 and 8)."""

from torch import Tensor

from tokennorm.ops.dtn_eager import axis_weights

GRID, TOKEN = (14, 14), (6, 7)  # the paper's: token 91 of 14 x 14


def row_of_p(position: Tensor, grid: tuple[int, int] = GRID, token: tuple[int, int] = TOKEN) -> Tensor:
    """Returns the weights that one token gives to all tokens of a grid, in float64.

    Args:
        position: [a1, a2, a3] of each head, (N, 3).
        grid: Height and width in tokens; with pooling, in pooled tokens.
        token: Row and column.

    Returns:
        (N, H, W); the weights of each head sum to 1.
    """
    a1, a2, a3 = position.detach().double().unbind(dim=1)
    p_y, p_x = axis_weights(a1, a3, grid[0])[:, token[0]], axis_weights(a1, a2, grid[1])[:, token[1]]
    return p_y[:, :, None] * p_x[:, None]
