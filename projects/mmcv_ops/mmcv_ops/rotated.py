"""Rotated boxes (x, y, w, h, angle in radians; positive angles are clockwise in the image): IoU and NMS."""

import torch
from torch import Tensor

from .checks import check_boxes, check_pairs
from .greedy import greedy
from .polygons import intersection
from .precision import float64

_CELLS = 1 << 20  # pairs of boxes whose circles are compared at once
PAIRS = 1 << 13  # pairs whose intersections are computed at once: what fits a CPU's cache


def vertices(boxes: Tensor) -> Tensor:
    """Returns the corners (..., 4, 2) of boxes (..., 5), in the direction of growing angles."""
    center, half, angle = boxes[..., :2], boxes[..., 2:4] / 2, boxes[..., 4]
    along = torch.stack([angle.cos(), angle.sin()], -1) * half[..., :1]
    across = torch.stack([-angle.sin(), angle.cos()], -1) * half[..., 1:]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return torch.stack([center + i * along + j * across for i, j in signs], -2)


def _ious(a: Tensor, b: Tensor, iof: bool = False) -> Tensor:
    """Returns IoUs (N,) of pairs of boxes (N, 5) in float64, computed relative to the middle of each pair."""
    middle = (a[:, :2] + b[:, :2]) / 2
    p, q = (vertices(torch.cat([boxes[:, :2] - middle, boxes[:, 2:5]], -1)) for boxes in (a, b))
    inter = intersection(p, q)
    area_a, area_b = a[:, 2] * a[:, 3], b[:, 2] * b[:, 3]
    empty = (area_a < 1e-14) | (area_b < 1e-14)
    return (inter / (area_a if iof else area_a + area_b - inter)).masked_fill(empty, 0)


def meeting_pairs(centers_a: Tensor, radii_a: Tensor, centers_b: Tensor, radii_b: Tensor):
    """Yields the pairs whose circles meet, as chunks of two index tensors (n,). All other pairs have no intersection.

    Centers are (N, 2) and (M, 2), radii (N,) and (M,). Pairs with NaN are among the pairs: their IoU is NaN.
    """
    rows = max(1, _CELLS // max(1, len(centers_b)))
    for first in range(0, len(centers_a), rows):
        part = slice(first, first + rows)
        distance = torch.cdist(centers_a[part], centers_b, compute_mode='donot_use_mm_for_euclid_dist')
        i, j = torch.nonzero(~(distance > (radii_a[part, None] + radii_b) * (1 + 1e-9)), as_tuple=True)
        yield from zip((i + first).split(PAIRS), j.split(PAIRS), strict=True)


def pairwise(a: Tensor, b: Tensor, iof: bool = False) -> Tensor:
    """Returns the IoUs (N, M) of boxes (N, 5) and (M, 5) in float64. Only boxes whose circles meet are compared."""
    ious = a.new_zeros(len(a), len(b))
    circles = a[:, :2], a[:, 2:4].norm(dim=1) / 2, b[:, :2], b[:, 2:4].norm(dim=1) / 2
    for i, j in meeting_pairs(*circles):
        ious[i, j] = _ious(a[i], b[j], iof)
    return ious


def box_iou_rotated(boxes1: Tensor, boxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Writes the IoUs: (N,) of pairs if `aligned`, else (N x M,). Mode 1 divides by the first box's area."""
    check_boxes('box_iou_rotated', boxes1)
    check_boxes('box_iou_rotated', boxes2)
    a, b = float64(boxes1[:, :5], boxes2[:, :5])
    if not aligned:
        ious.copy_(pairwise(a, b, mode_flag == 1).flatten())
    elif len(a):
        check_pairs('box_iou_rotated', a, b)
        parts = zip(a.split(PAIRS), b.split(PAIRS), strict=True)
        ious.copy_(torch.cat([_ious(*part, mode_flag == 1) for part in parts]))


def nms_rotated(
    dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, labels: Tensor, iou_threshold: float,
    multi_label: bool,
) -> Tensor:  # fmt: skip
    """Returns the indices of the kept boxes, by descending score. As in mmcv, labels have no influence.

    Args:
        dets: (N, 5), or (N, 6) with labels. Not used here.
        scores: (N,). Only their number is used.
        order: (N,): the boxes by descending score.
        dets_sorted: `dets` in this order.
        labels: (N,) or empty. Not used here.
        iou_threshold: Boxes with this IoU or a larger one with a kept one are removed.
        multi_label: Whether there are labels.
    """
    check_boxes('nms_rotated', dets, scores)
    (boxes,) = float64(dets_sorted[:, :5])
    return order[greedy(len(boxes), lambda i, j: pairwise(boxes[i], boxes[j]) >= iou_threshold, boxes.device)]
