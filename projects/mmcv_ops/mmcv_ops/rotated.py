"""Rotated boxes (x, y, w, h, angle in radians; positive angles are clockwise in the image): IoU and NMS."""

import torch
from torch import Tensor

from .checks import check_boxes
from .pairs import Form, nms, ratio, write_ious
from .polygons import intersection


def vertices(boxes: Tensor) -> Tensor:
    """Returns the corners (..., 4, 2) of boxes (..., 5), in the direction of growing angles."""
    center, half, angle = boxes[..., :2], boxes[..., 2:4] / 2, boxes[..., 4]
    along = torch.stack([angle.cos(), angle.sin()], -1) * half[..., :1]
    across = torch.stack([-angle.sin(), angle.cos()], -1) * half[..., 1:]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return torch.stack([center + i * along + j * across for i, j in signs], -2)


def _ious(a: Tensor, b: Tensor, iof: bool) -> Tensor:
    """Returns IoUs (N,) of pairs of boxes (N, 5) in float64, computed relative to the middle of each pair."""
    middle = (a[:, :2] + b[:, :2]) / 2
    p, q = (vertices(torch.cat([boxes[:, :2] - middle, boxes[:, 2:5]], -1)) for boxes in (a, b))
    return ratio(intersection(p, q), a[:, 2] * a[:, 3], b[:, 2] * b[:, 3], iof)


_ROTATED = Form(lambda boxes: (boxes[:, :2], boxes[:, 2:4].norm(dim=1) / 2), _ious)


def box_iou_rotated(boxes1: Tensor, boxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Writes the IoUs: (N,) of pairs if `aligned`, else (N x M,). Mode 1 divides by the first box's area."""
    write_ious('box_iou_rotated', _ROTATED, boxes1[:, :5], boxes2[:, :5], ious, mode_flag, aligned)


def nms_rotated(
    dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, labels: Tensor, iou_threshold: float,
    multi_label: bool,
) -> Tensor:  # fmt: skip
    """Returns the indices of the kept boxes, by descending score. As in mmcv, labels have no influence.

    Args:
        dets: (N, 5), or (N, 6) with labels.
        scores: (N,). Only their number is used.
        order: (N,): the boxes by descending score.
        dets_sorted: `dets` in this order.
        labels: (N,) or empty. Not used here.
        iou_threshold: Boxes with this IoU or a larger one with a kept one are removed.
        multi_label: Whether there are labels.
    """
    check_boxes('nms_rotated', dets, scores)
    return nms(_ROTATED, dets_sorted[:, :5], order, iou_threshold)
