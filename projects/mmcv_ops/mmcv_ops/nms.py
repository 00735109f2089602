"""Non-maximum suppression of boxes (x1, y1, x2, y2): greedy, soft, and with the list of what each box suppressed.

The order among equal scores is that of mmcv, which sorts unstably with `scores.sort(0, descending=True)`.
"""

from itertools import islice

import numpy as np
import torch
from torch import Tensor

from .greedy import greedy
from .precision import float32

_NEXT = 128  # boxes whose overlaps with all others are computed at once in soft NMS


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Returns the indices of the kept boxes, by descending score.

    Args:
        boxes: (N, 4). With `offset` 1 a box covers x2 - x1 + 1 pixels.
        scores: (N,).
        iou_threshold: Boxes with a larger IoU with a kept one are removed. Rounded to float32, as in mmcv.
        offset: 0 or 1.
    """
    boxes, scores = float32(boxes, scores)
    if offset:  # the same as moving the far corner
        boxes = torch.cat([boxes[:, :2], boxes[:, 2:] + offset], 1)
    order = scores.sort(0, descending=True)[1]
    ranks = torch.arange(len(order), 0, -1, device=boxes.device).to(boxes)
    kept = torch.ops.torchvision.nms(boxes[order], ranks, float(np.float32(iou_threshold)))
    return order[kept]


def softnms(
    boxes: Tensor, scores: Tensor, dets: Tensor, iou_threshold: float, sigma: float, min_score: float, method: int,
    offset: int,
) -> Tensor:  # fmt: skip
    """Writes boxes and rescored scores into `dets` and returns the indices of the kept boxes, in the order of `dets`.

    Args:
        boxes: (N, 4), on the CPU.
        scores: (N,), on the CPU.
        dets: (N, 5), written: x1, y1, x2, y2, score.
        iou_threshold: Used by the methods 0 and 1.
        sigma: Used by method 2.
        min_score: Boxes whose score falls below are removed.
        method: 0 removes (naive), 1 multiplies by 1 - IoU (linear), 2 by exp(-IoU^2 / sigma) (gaussian).
        offset: 0 or 1.
    """
    corners, rest = boxes.detach().float().numpy(), scores.detach().float().numpy().copy()
    order = np.arange(len(rest))
    row_of = np.full(len(rest), -1)  # of each box in `weights`, which has the boxes that probably come next
    n, i, min_score = len(rest), 0, np.float32(min_score)
    with np.errstate(all='ignore'):
        while i < n:
            # mmcv takes the first of the highest; a NaN is never higher, and nothing is higher than a NaN.
            best = i + int(rest[i:n].argmax())
            if rest[best] != rest[best]:
                best = i if np.isnan(rest[i]) else i + int(np.nanargmax(rest[i:n]))
            rest[i], rest[best] = rest[best], rest[i]
            order[i], order[best] = order[best], order[i]
            if row_of[order[i]] < 0:
                rows = order[np.append(i, i + 1 + rest[i + 1 : n].argsort()[: -_NEXT - 1 : -1])]
                weights = _soft_weights(corners[rows], corners, iou_threshold, sigma, method, offset)
                row_of[:], row_of[rows] = -1, np.arange(len(rows))
            weight = weights[row_of[order[i]]].take(order[i + 1 : n])
            i += 1
            rest[i:n] *= weight
            low = rest[i:n] < min_score
            if np.count_nonzero(low):
                # mmcv moves the last box into a removed place.
                left = len(low) - np.count_nonzero(low)
                holes = i + np.flatnonzero(low[:left])
                fillers = i + left + np.flatnonzero(~low[left:])[::-1]
                rest[holes], order[holes] = rest[fillers], order[fillers]
                n = i + left
    kept = torch.from_numpy(order[:n].copy())
    dets[:n] = torch.cat([boxes[kept], torch.from_numpy(rest[:n, None])], 1).to(dets)
    return kept


def _soft_weights(boxes, others, iou_threshold: float, sigma: float, method: int, offset: int) -> np.ndarray:
    """Returns by what each box (K, 4) multiplies the scores of the others (N, 4), as (K, N) in float32."""
    x1, y1, x2, y2 = boxes.T[:, :, None]
    left, top, right, bottom = np.ascontiguousarray(others.T)
    width = np.maximum(0, np.minimum(x2, right) - np.maximum(x1, left) + offset)
    height = np.maximum(0, np.minimum(y2, bottom) - np.maximum(y1, top) + offset)
    inter = width * height
    areas = (right - left + offset) * (bottom - top + offset)
    iou = inter / ((x2 - x1 + offset) * (y2 - y1 + offset) + areas - inter)
    if method == 2:
        return np.exp((-(iou * iou) / np.float32(sigma)).astype(np.float64)).astype(np.float32)
    return np.where(iou >= np.float32(iou_threshold), 1 - iou if method == 1 else np.float32(0), np.float32(1))


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Returns one list per kept box, by descending score: its index, then the indices of the boxes that it suppressed.

    Args:
        dets: (N, 5): x1, y1, x2, y2, score.
        iou_threshold: Boxes with this IoU or a larger one with a kept one are suppressed.
    """
    iou_threshold = float(np.float32(iou_threshold))
    order = dets[:, 4].float().sort(0, descending=True)[1]
    x1, y1, x2, y2 = dets.float()[order, :4].T.contiguous()
    areas = (x2 - x1) * (y2 - y1)

    def overlaps(i: Tensor, j: Tensor) -> Tensor:
        width = torch.minimum(x2[i, None], x2[j]).sub_(torch.maximum(x1[i, None], x1[j])).clamp_(min=0)
        inter = torch.minimum(y2[i, None], y2[j]).sub_(torch.maximum(y1[i, None], y1[j])).clamp_(min=0).mul_(width)
        return inter / (areas[i, None] + areas[j] - inter) >= iou_threshold

    kept, owner = greedy(len(order), overlaps, dets.device)
    members = owner.sort(stable=True)[1]  # by the kept box, then by score: the kept box itself is its first
    sizes = owner.bincount(minlength=len(owner))[kept].tolist()
    indices = iter(order[members].tolist())
    return [list(islice(indices, size)) for size in sizes]
