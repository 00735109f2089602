"""Eq. 6 of the DTN paper in an attention instead of DTN (Table 10a)."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from tokennorm.norms.dtn import attention_centers


def eq6_bias(position: Tensor, height: int, width: int, sr_ratio: int = 1) -> Tensor:
    """The exponent of Eq. 6 of the DTN paper, R a, as a bias of attention logits over a grid of H x W.

    With spatial reduction a key replaces `sr_ratio` x `sr_ratio` tokens. It is at their center, and shifts are counted
    in keys. Tokens that fill no key have none, except that there is at least one key per row and per column.

    Args:
        position: [a1, a2, a3] of each head, the factors of dx^2 + dy^2, dx and dy, (N, 3).
        height: H, in tokens.
        width: W, in tokens.
        sr_ratio: Side of a key, in tokens.

    Returns:
        Bias (N, H * W, H' * W') of each query and key, where (dx, dy) is the key's position minus the query's.
    """
    a1, a2, a3 = (a[:, None, None] for a in position.unbind(dim=-1))
    dy, dx = (_shifts(size, sr_ratio, position) for size in (height, width))
    of_rows, of_columns = a1 * dy * dy + a3 * dy, a1 * dx * dx + a2 * dx
    bias = of_rows[:, :, None, :, None] + of_columns[:, None, :, None, :]
    return rearrange(bias, 'n h w kh kw -> n (h w) (kh kw)')


def _shifts(size: int, sr_ratio: int, like: Tensor) -> Tensor:
    """Shifts from each of `size` queries to each key of an axis, (size, max(size // sr_ratio, 1)), in keys."""
    queries, keys = (
        torch.arange(count, dtype=like.dtype, device=like.device) + 0.5 for count in (size, max(size // sr_ratio, 1))
    )
    return keys - queries[:, None] / sr_ratio


class Eq6:
    """Adds the exponent of Eq. 6 to the logits of an attention, with a learned `position` (N, 3)."""

    def __init__(self, dims: int, num_heads: int, *args: Any) -> None:
        super().__init__(dims, num_heads, *args)
        self.position = nn.Parameter(torch.empty(num_heads, 3))

    def bias(self, q: Tensor, height: int, width: int) -> Tensor:
        """Queries (B, N, H * W, D) -> (N, H * W, keys)."""
        position = self.position.to(torch.promote_types(q.dtype, torch.float32))
        return eq6_bias(position, height, width, getattr(self, 'sr_ratio', 1)).to(q.dtype)


@torch.no_grad()
def reset_eq6(model: nn.Module) -> None:
    """Initializes the `position` of every attention with Eq. 6, by Eq. 7."""
    for module in model.modules():
        if isinstance(module, Eq6):
            module.position[:, 0] = -1
            module.position[:, 1:] = 2 * attention_centers(module.num_heads)
