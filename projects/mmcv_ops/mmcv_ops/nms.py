"""Non-maximum suppression of boxes (x1, y1, x2, y2): greedy, soft, and with the list of what each box suppressed.

The order among equal scores is that of mmcv, which sorts unstably with `scores.sort(0, descending=True)`.
"""

import numpy as np
import torch
from torch import Tensor

from .precision import float32


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
    one = np.float32(1)
    x1, y1, x2, y2 = rows = boxes.detach().float().numpy().T.copy()
    sides = x2 - x1 + offset, y2 - y1 + offset
    # One column per box: x1, y1, x2, y2, score, area.
    table = np.stack([*rows, scores.detach().float().numpy(), sides[0] * sides[1]])
    indices = np.arange(table.shape[1])
    n, i = len(indices), 0
    iou_threshold, sigma, min_score = np.float32(iou_threshold), np.float32(sigma), np.float32(min_score)
    with np.errstate(all='ignore'):
        while i < n:
            # mmcv takes the first of the highest; a NaN is never higher, and nothing is higher than a NaN.
            tail = table[4, i:n]
            best = i if np.isnan(tail[0]) else i + int(np.nanargmax(tail))
            table[:, [i, best]], indices[[i, best]] = table[:, [best, i]], indices[[best, i]]
            x1, y1, x2, y2, _, area = table[:, i]
            rest = table[:, i + 1 : n]
            width = np.fmax(0, np.fmin(x2, rest[2]) - np.fmax(x1, rest[0]) + offset)
            height = np.fmax(0, np.fmin(y2, rest[3]) - np.fmax(y1, rest[1]) + offset)
            inter = width * height
            iou = inter / (area + rest[5] - inter)
            if method == 2:
                weight = np.exp((-(iou * iou) / sigma).astype(np.float64)).astype(np.float32)
            else:
                weight = np.where(iou >= iou_threshold, one - iou if method == 1 else np.float32(0), one)
            rest[4] *= weight
            keep = ~(rest[4] < min_score)
            # mmcv moves the last box into a removed place.
            left = int(keep.sum())
            holes = np.flatnonzero(~keep[:left])
            fillers = left + np.flatnonzero(keep[left:])[::-1]
            rest[:, holes] = rest[:, fillers]
            indices[i + 1 + holes] = indices[i + 1 + fillers]
            n = i + 1 + left
            i += 1
    dets[:n] = torch.from_numpy(table[:5, :n].T.copy()).to(dets)
    return torch.from_numpy(indices[:n].copy())


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Returns one list per kept box, by descending score: its index, then the indices of the boxes that it suppressed.

    Args:
        dets: (N, 5): x1, y1, x2, y2, score.
        iou_threshold: Boxes with this IoU or a larger one with a kept one are suppressed.
    """
    iou_threshold = float(np.float32(iou_threshold))
    dets = dets.float()
    order = dets[:, 4].sort(0, descending=True)[1]
    boxes, groups = dets[order, :4], []
    while len(order):
        sides = boxes[:, 2:] - boxes[:, :2]
        overlap = (torch.minimum(boxes[0, 2:], boxes[:, 2:]) - torch.maximum(boxes[0, :2], boxes[:, :2])).clamp(min=0)
        inter, area = overlap[:, 0] * overlap[:, 1], sides[:, 0] * sides[:, 1]
        suppressed = inter / (area[0] + area - inter) >= iou_threshold
        suppressed[0] = True  # the kept box itself, also where its area is 0
        groups.append(order[suppressed].tolist())
        order, boxes = order[~suppressed], boxes[~suppressed]
    return groups
