"""IoU of boxes (x1, y1, x2, y2)."""

import torch
from torch import Tensor

from .precision import float32


def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int) -> None:
    """Writes the IoUs: (N,) of pairs if `aligned`, else (N, M).

    Args:
        bboxes1: (N, 4).
        bboxes2: (M, 4).
        ious: Written.
        mode: 0 divides by the area of the union, 1 by that of the first box.
        aligned: Whether N pairs are compared.
        offset: 0 or 1. With 1 a box covers x2 - x1 + 1 pixels.
    """
    a, b = float32(bboxes1, bboxes2)
    area_a, area_b = ((box[:, 2:] - box[:, :2] + offset).prod(1) for box in (a, b))
    if not aligned:
        a, area_a = a[:, None], area_a[:, None]
    low, high = torch.maximum(a[..., :2], b[:, :2]), torch.minimum(a[..., 2:], b[:, 2:])
    inter = (high - low + offset).clamp(min=0).prod(-1)
    ious.copy_(inter / (area_a if mode == 1 else area_a + area_b - inter))
