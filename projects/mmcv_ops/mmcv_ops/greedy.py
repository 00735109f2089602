"""Greedy suppression, for any kind of box: each kept box removes the later ones that it overlaps.

The boxes go through in blocks. A block is compared with itself, and what it keeps with the boxes that are left, so
that the work is (kept boxes) x (boxes left) as in a compiled loop, in a few large steps. The first blocks are small:
the best boxes often remove most of the others.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

_FIRST_BLOCK, _LARGEST_BLOCK = 16, 128


def greedy(count: int, overlaps: Callable[[Tensor, Tensor], Tensor], device: torch.device) -> Tensor:
    """Suppresses boxes that are numbered by descending score.

    Args:
        count: Number of boxes, N.
        overlaps: Takes the numbers of K boxes and of L boxes, on `device`. Returns (K, L), true where a box removes
            the other one.
        device: Where the numbers are made.

    Returns:
        The numbers of the kept boxes, ascending, on `device`.
    """
    left = torch.arange(count, device=device)
    kept, block = [left[:0]], _FIRST_BLOCK
    while len(left):
        head, left = left[:block], left[block:]
        block = min(2 * block, _LARGEST_BLOCK)
        chosen = head[[row for row, _ in within(overlaps(head, head).cpu().numpy())]]
        kept.append(chosen)
        if len(left):
            left = left[~overlaps(chosen, left).any(0)]
    return torch.cat(kept)


def within(over: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Yields for each kept box of a block its number and those of the boxes that it removed. `over` is (K, K).

    Rows are integers of K bits: one operation compares a box with all later ones.
    """
    rows = [int.from_bytes(row, 'little') for row in np.packbits(over, 1, bitorder='little')]
    alive = (1 << len(rows)) - 1
    for i, row in enumerate(rows):
        if alive >> i & 1:
            removed, numbers = row & alive & -(2 << i), []
            alive ^= removed
            while removed:
                lowest = removed & -removed
                numbers.append(lowest.bit_length() - 1)
                removed ^= lowest
            yield i, numbers
