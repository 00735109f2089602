"""Greedy suppression, for any kind of box: each kept box removes the later ones that it overlaps.

The boxes go through in blocks. A block is compared with itself, and what it keeps with the boxes that are left, so
that the work is (kept boxes) x (boxes left) as in a compiled loop, in a few large steps. The first blocks are small:
the best boxes often remove most of the others.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_FIRST_BLOCK, _LARGEST_BLOCK = 16, 128


def greedy(count: int, overlaps: Callable[[Tensor, Tensor], Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Suppresses boxes that are numbered by descending score.

    Args:
        count: Number of boxes, N.
        overlaps: Takes the numbers of K boxes and of L boxes, on `device`. Returns (K, L), true where a box removes
            the other one.
        device: Where the numbers are made.

    Returns:
        The numbers of the kept boxes, ascending; and for each of the N boxes the number of the box that removed it, its
        own if it is kept. Both are on `device`.
    """
    left = torch.arange(count, device=device)
    owner, kept, block = left.clone(), [left[:0]], _FIRST_BLOCK
    while len(left):
        head, left = left[:block], left[block:]
        block = min(2 * block, _LARGEST_BLOCK)
        owners = torch.from_numpy(_within(overlaps(head, head).cpu().numpy())).to(device)
        owner[head] = head[owners]
        chosen = head[owners == torch.arange(len(head), device=device)]
        kept.append(chosen)
        if len(left):
            over = overlaps(chosen, left)
            removed = over.any(0)
            owner[left[removed]] = chosen[over[:, removed].int().argmax(0)]  # the first of the highest is the first
            left = left[~removed]
    return torch.cat(kept), owner


def _within(over: np.ndarray) -> np.ndarray:
    """Returns for each box of a block (K,) the one that removed it, its own number if it is kept. `over` is (K, K)."""
    owner = np.arange(len(over))
    alive = np.ones(len(over), bool)
    for i in range(len(over)):
        if alive[i]:
            removed = over[i] & alive
            removed[: i + 1] = False
            owner[removed] = i
            alive &= ~removed
    return owner
