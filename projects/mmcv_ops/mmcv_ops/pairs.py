"""IoU and NMS of boxes of any form: intersections are computed where the circles around two boxes meet, in float64.

A form of boxes is two functions: `circles` returns centers (N, 2) and radii (N,) of circles that contain the boxes
(N, ...), `ious` returns the IoUs (N,) of pairs, divided by the first one's area instead of the union's if `iof`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .checks import check_boxes, check_pairs
from .greedy import greedy
from .precision import float64

_CELLS = 1 << 20  # pairs of boxes whose circles are compared at once
PAIRS = 1 << 13  # pairs whose intersections are computed at once: what fits a CPU's cache


class Form(NamedTuple):
    circles: Callable[[Tensor], tuple[Tensor, Tensor]]
    ious: Callable[[Tensor, Tensor, bool], Tensor]


def ratio(inter: Tensor, area_a: Tensor, area_b: Tensor, iof: bool) -> Tensor:
    """Returns IoUs, or intersections divided by the first area. 0 where a box has no area."""
    empty = (area_a < 1e-14) | (area_b < 1e-14)
    return (inter / (area_a if iof else area_a + area_b - inter)).masked_fill(empty, 0)


def meeting_pairs(
    centers_a: Tensor, radii_a: Tensor, centers_b: Tensor, radii_b: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the pairs whose circles meet, as chunks of two index tensors (n,). All other pairs have no intersection.

    Centers are (N, 2) and (M, 2), radii (N,) and (M,). Pairs with NaN are among the pairs: their IoU is NaN.
    """
    rows = max(1, _CELLS // max(1, len(centers_b)))
    for first in range(0, len(centers_a), rows):
        part = slice(first, first + rows)
        distance = torch.cdist(centers_a[part], centers_b, compute_mode='donot_use_mm_for_euclid_dist')
        i, j = torch.nonzero(~(distance > (radii_a[part, None] + radii_b) * (1 + 1e-9)), as_tuple=True)
        yield from zip((i + first).split(PAIRS), j.split(PAIRS), strict=True)


def pairwise(form: Form, a: Tensor, b: Tensor, iof: bool = False) -> Tensor:
    """Returns the IoUs (N, M) of boxes (N, ...) and (M, ...)."""
    ious = a.new_zeros(len(a), len(b))
    for i, j in meeting_pairs(*form.circles(a), *form.circles(b)):
        ious[i, j] = form.ious(a[i], b[j], iof)
    return ious


def write_ious(function: str, form: Form, a: Tensor, b: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Writes the IoUs: (N,) of pairs if `aligned`, else (N x M,). Mode 1 divides by the first box's area."""
    for boxes in (a, b):
        check_boxes(function, boxes)
    a, b = float64(a, b)
    if not aligned:
        ious.copy_(pairwise(form, a, b, mode_flag == 1).flatten())
        return
    check_pairs(function, a, b)
    for i in range(0, len(a), PAIRS):
        rows = slice(i, i + PAIRS)
        ious[rows] = form.ious(a[rows], b[rows], mode_flag == 1).to(ious)


def nms(form: Form, boxes: Tensor, order: Tensor, iou_threshold: float) -> Tensor:
    """Returns the indices `order` (N,) of the kept ones of boxes (N, ...), which are sorted by descending score.

    Boxes with the IoU `iou_threshold` or a larger one with a kept one are removed.
    """
    (boxes,) = float64(boxes)
    # In float32, as in mmcv: rounding errors of float64 would decide about IoUs that are equal to the threshold.
    near = lambda i, j: pairwise(form, boxes[i], boxes[j]).float() >= iou_threshold  # noqa: E731
    return order[greedy(len(boxes), near, boxes.device)]
