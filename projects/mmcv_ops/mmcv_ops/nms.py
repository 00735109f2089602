"""Non-maximum suppression of boxes (x1, y1, x2, y2): greedy, soft, and with the list of what each box suppressed.

The order among equal scores is that of mmcv, which sorts unstably with `scores.sort(0, descending=True)`.
"""

from itertools import islice

import numpy as np
import torch
from torch import Tensor

from .greedy import greedy
from .precision import float32

_NEXT = 64  # boxes whose overlaps with all others are computed at once in soft NMS


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
    corners = np.ascontiguousarray(boxes.detach().float().numpy().T)  # (4, N)
    rest, order, kept, rescored = scores.detach().float().numpy().copy(), np.arange(len(scores)), [], []
    with np.errstate(all='ignore'):
        while len(order):
            chosen, values, rest, order = _soft_block(
                corners, rest, order, iou_threshold, sigma, np.float32(min_score), method, offset
            )
            kept += chosen
            rescored += values
    index = torch.tensor(kept, dtype=torch.long)
    rest = torch.tensor(np.array(rescored, np.float32))
    dets[: len(index)] = torch.cat([boxes[index], rest[:, None]], 1).to(dets)
    return index


def _soft_block(corners, rest, order, iou_threshold, sigma, min_score, method, offset) -> tuple:
    """Takes boxes by their score until one comes whose overlaps were not computed: most of the _NEXT best ones.

    Returns their indices and scores, and scores and indices of the boxes that are left, in mmcv's order.
    """
    best_first = rest.argsort()[: -_NEXT - 1 : -1]
    if rest[best_first[0]] != rest[best_first[0]]:  # NaN
        best_first = np.append(_highest(rest), best_first)
    weights = _soft_weights(corners[:, order[best_first]], corners[:, order], iou_threshold, sigma, method, offset)
    row_of = np.full(len(order), -1)
    row_of[best_first] = np.arange(len(best_first))
    column, start, end, chosen, values = np.arange(len(order)), 0, len(order), [], []
    while start < end:
        best = start + int(rest[start:end].argmax())
        if rest[best] != rest[best]:
            best = start + _highest(rest[start:end])
        row = row_of[column[best]]
        if row < 0:
            break
        chosen.append(order[column[best]])
        values.append(rest[best])
        rest[best], column[best] = rest[start], column[start]
        start += 1
        left = rest[start:end]
        left *= weights[row].take(column[start:end])
        low = left < min_score
        if np.count_nonzero(low):
            # mmcv moves the last box into a removed place.
            end = start + len(low) - np.count_nonzero(low)
            holes = start + np.flatnonzero(low[: end - start])
            fillers = end + np.flatnonzero(~low[end - start :])[::-1]
            rest[holes], column[holes] = rest[fillers], column[fillers]
    return chosen, values, rest[start:end], order[column[start:end]]


def _highest(scores: np.ndarray) -> int:
    """Returns the first of the highest scores, as mmcv: a NaN is never higher, and nothing is higher than a NaN."""
    return 0 if np.isnan(scores[0]) else int(np.nanargmax(scores))


def _soft_weights(boxes, others, iou_threshold: float, sigma: float, method: int, offset: int) -> np.ndarray:
    """Returns by what each box (4, K) multiplies the scores of the others (4, N), as (K, N) in float32."""
    x1, y1, x2, y2 = boxes[..., None]
    left, top, right, bottom = others
    inter, height = np.minimum(x2, right), np.minimum(y2, bottom)
    for side, low, high in ((inter, x1, left), (height, y1, top)):
        side -= np.maximum(low, high)
        side += offset
        np.maximum(side, 0, out=side)
    inter *= height
    areas = (right - left + offset) * (bottom - top + offset)
    union = (x2 - x1 + offset) * (y2 - y1 + offset) + areas
    union -= inter
    iou = np.divide(inter, union, out=union)
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
