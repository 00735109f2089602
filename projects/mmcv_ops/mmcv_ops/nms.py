"""Non-maximum suppression of boxes (x1, y1, x2, y2): greedy, soft, and with the list of what each box suppressed.

The order among equal scores is that of mmcv, which sorts unstably with `scores.sort(0, descending=True)`.
"""

from ctypes import c_float
from heapq import heapify, heappop, heapreplace

import numpy as np
import torch
from torch import Tensor

from .checks import check_boxes
from .greedy import within
from .precision import float32

_NEXT = 64  # boxes whose overlaps with all others are computed at once in soft NMS
_CELLS = 1 << 16  # overlaps that are computed at once in soft NMS, if that is more
_SPARSE, _MEETING = 1024, 64  # most boxes, and pairs per box, for which soft NMS takes lists of pairs
_FIRST_BLOCK, _LARGEST_BLOCK = 32, 128  # boxes whose overlaps with all others are computed at once


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Returns the indices of the kept boxes, by descending score.

    Args:
        boxes: (N, 4). With `offset` 1 a box covers x2 - x1 + 1 pixels.
        scores: (N,).
        iou_threshold: Boxes with a larger IoU with a kept one are removed. Rounded to float32, as in mmcv.
        offset: 0 or 1.
    """
    check_boxes('nms', boxes, scores)
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
    check_boxes('soft_nms', boxes, scores)
    corners = np.ascontiguousarray(boxes.detach().float().numpy().T)  # (4, N)
    rest, how = scores.detach().float().numpy(), (iou_threshold, sigma, method, offset)
    with np.errstate(all='ignore'):
        kept = _soft_without_ties(corners, rest, np.float32(min_score), how)
        if kept is None:
            kept = _soft_with_ties(corners, rest, np.float32(min_score), how)
    index, values = map(torch.from_numpy, kept)
    dets[: len(index), :4] = boxes[index]
    dets[: len(index), 4] = values
    return index


def _soft_without_ties(corners, scores, min_score: np.float32, how: tuple) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the indices and scores of the kept boxes, in the fastest of three forms.

    Returns None where mmcv's order depends on more than the scores: equal scores, and NaN. In the others a box below
    the lowest score has no influence, so that the first such one is the end.
    """
    threshold, sigma, method, offset = how
    if not (len(scores) and min_score > 0 and np.isfinite(scores).all() and (method != 2 or sigma > 0)):
        return None
    if method == 0 and not offset and np.isfinite(corners).all():
        return _naive(corners, scores, min_score, threshold)
    apart = method != 0 or threshold > 0  # boxes that do not meet leave each other alone
    pairs = _pairs(corners, how) if apart and len(scores) <= _SPARSE else None
    if pairs is None:
        return _soft_rows(corners, scores, min_score, how)
    return _soft_pairs(*pairs, scores, min_score)


def _naive(corners, scores, min_score: np.float32, iou_threshold: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Is NMS that removes at the threshold, too: torchvision's removes above the number below it."""
    order = _descending(scores, min_score)
    if order is None:
        return None
    below = float(np.nextafter(np.float32(iou_threshold), np.float32(-np.inf)))
    boxes, ranks = torch.from_numpy(corners.T[order]), torch.arange(len(order), 0, -1.0, device='cpu')
    kept = order[torch.ops.torchvision.nms(boxes, ranks, below).numpy()]
    return kept, scores[kept]


def _descending(scores: np.ndarray, min_score: np.float32) -> np.ndarray | None:
    """Returns the indices of the highest score, and of the others that are not below `min_score`. None if two equal."""
    order = (-scores).argsort()
    values = scores[order]
    order = order[: max(1, np.count_nonzero(values >= min_score))]
    return None if (values[1 : len(order) + 1] == values[: len(order)][: len(values) - 1]).any() else order


def _pairs(corners, how: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Returns pairs of boxes of which one changes the other's score, and the factors; ordered by the first one.

    Returns None if they are many, or if their factors may be NaN.
    """
    count = corners.shape[1]
    meeting = _meeting(corners[..., None], corners[:, None], how[3])
    if meeting is None or np.count_nonzero(meeting) > _MEETING * count:
        return None
    row, column = np.divmod(np.flatnonzero(meeting), count)  # faster than nonzero
    factors = _soft_weights(corners.take(row, 1), corners.take(column, 1), *how)
    changed = np.flatnonzero(factors != 1)
    if len(changed) > (4 + count // 64) * count:
        return None
    return row[changed], column[changed], factors[changed]


def _soft_pairs(row, column, factors, scores, min_score: np.float32) -> tuple[np.ndarray, np.ndarray] | None:
    """Is soft NMS of the boxes in pairs alone: what the others are does not depend on them."""
    bounds = np.searchsorted(row, np.arange(len(scores) + 1)).tolist()
    others, factors, now, final = column.tolist(), factors.tolist(), scores.tolist(), scores.copy()
    heap = [(-now[box], box) for box in range(len(now)) if bounds[box] < bounds[box + 1]]
    heapify(heap)
    while heap:
        negative, box = heap[0]
        score = now[box]
        if -score != negative:  # from before a rescoring
            heapreplace(heap, (-score, box))
            continue
        if score < min_score:
            break
        heappop(heap)
        if heap and heap[0][0] == negative:
            return None
        final[box] = score
        for i in range(bounds[box], bounds[box + 1]):
            other = others[i]
            now[other] = c_float(now[other] * factors[i]).value
    for _, box in heap:
        final[box] = now[box]
    order = _descending(final, min_score)
    return None if order is None else (order, final[order])


def _soft_rows(corners, scores, min_score: np.float32, how: tuple) -> tuple[np.ndarray, np.ndarray] | None:
    """Is soft NMS with two operations per kept box: a search of the highest score, and a multiplication of all."""
    kept, values, order, few = [], [], np.arange(len(scores)), None
    while len(order):
        count = min(len(order), few or max(_NEXT, _CELLS // len(order)))
        best = np.arange(count) if count == len(order) else scores.argpartition(-count)[-count:]
        weights = _soft_weights(corners[:, best, None], corners[:, None], *how)
        weights[np.arange(count), best] = 0  # a box is taken once
        if not (weights.min() >= 0 and weights.max() <= 1):
            return None
        row_of = [None] * len(order)
        for box, row in zip(best.tolist(), weights, strict=True):
            row_of[box] = row
        history = np.empty((count + 1, len(order)), np.float32)
        history[0] = scores
        before, chosen, multiply = history[0], [], np.multiply
        for after in history[1:]:
            box = before.argmax()
            row = row_of[box]
            if row is None:
                break
            chosen.append(box)
            before = multiply(before, row, after)
        history = history[: len(chosen)]
        highest = history[np.arange(len(chosen)), chosen]
        enough = highest >= min_score
        enough[0] |= not kept
        used = np.count_nonzero(enough)
        if np.count_nonzero(history[:used] == highest[:used, None]) != used:
            return None
        kept.append(order[chosen[:used]])
        values.append(highest[:used])
        left = before >= min_score
        scores, corners, order = before[left], corners[:, left], order[left]
        few = 2 * used + 8 if 4 * used < count else None
    return np.concatenate(kept), np.concatenate(values)


def _meeting(a: np.ndarray, b: np.ndarray, offset: int) -> np.ndarray | None:
    """Returns which boxes (4, N, 1) meet which boxes (4, 1, N). All others have an IoU of 0. None if it may be NaN."""
    areas = (a[2] - a[0] + offset) * (a[3] - a[1] + offset)
    if not ((areas > 0) & (areas < np.inf)).all():
        return None
    right, bottom, other_right, other_bottom = a[2] + offset, a[3] + offset, b[2] + offset, b[3] + offset
    return (a[0] <= other_right) & (b[0] <= right) & (a[1] <= other_bottom) & (b[1] <= bottom)


def _soft_with_ties(corners, scores, min_score: np.float32, how: tuple) -> tuple[np.ndarray, np.ndarray]:
    kept, rescored, order, rest = [], [], np.arange(len(scores)), scores.copy()
    while len(order):
        chosen, values, rest, order = _soft_block(corners, rest, order, min_score, how)
        kept += chosen
        rescored += values
    return np.array(kept, np.int64), np.array(rescored, np.float32)


def _soft_block(corners, rest, order, min_score, how: tuple) -> tuple:
    """Takes boxes by their score until one comes whose overlaps were not computed: most of the _NEXT best ones.

    Returns their indices and scores, and scores and indices of the boxes that are left, in mmcv's order.
    """
    best_first = np.append(_highest(rest), rest.argsort()[: -_NEXT - 1 : -1])  # the first of equal ones
    weights = _soft_weights(corners[:, order[best_first], None], corners[:, order], *how)
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
    """Returns by what boxes (4, ...) multiply the scores of others (4, ...), in float32."""
    iou = _ious(boxes, others, offset)
    if method == 2:
        return np.exp((-(iou * iou) / np.float32(sigma)).astype(np.float64)).astype(np.float32)
    return np.where(iou >= np.float32(iou_threshold), 1 - iou if method == 1 else np.float32(0), np.float32(1))


def _ious(boxes: np.ndarray, others: np.ndarray, offset: int) -> np.ndarray:
    """Returns the IoUs of boxes (4, ...) and (4, ...)."""
    x1, y1, x2, y2 = boxes
    left, top, right, bottom = others
    inter, height = np.minimum(x2, right), np.minimum(y2, bottom)
    for side, low, high in ((inter, x1, left), (height, y1, top)):
        side -= np.maximum(low, high)
        if offset:
            side += offset
        np.maximum(side, 0, out=side)
    inter *= height
    areas = (right - left + offset) * (bottom - top + offset)
    union = (x2 - x1 + offset) * (y2 - y1 + offset) + areas
    union -= inter
    return np.divide(inter, union, out=union)


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Returns one list per kept box, by descending score: its index, then the indices of the boxes that it suppressed.

    Args:
        dets: (N, 5): x1, y1, x2, y2, score, on the CPU.
        iou_threshold: Boxes with this IoU or a larger one with a kept one are suppressed.
    """
    check_boxes('nms_match', dets)
    dets = dets.detach().float()
    order = dets[:, 4].sort(0, descending=True)[1]
    corners = dets[order, :4].numpy().T.copy()
    numbers, groups, left, block = order.tolist(), [], np.arange(len(order)), _FIRST_BLOCK
    threshold = np.float32(iou_threshold)
    while len(left):
        head, left = left[:block], left[block:]
        block = min(2 * block, _LARGEST_BLOCK)
        kept = {}
        for row, removed in within(_overlapping(corners, head, head, threshold)):
            kept[head[row]] = [numbers[head[i]] for i in (row, *removed)]
        chosen = np.array(list(kept))
        if len(left):
            over = _overlapping(corners, chosen, left, threshold)
            gone = over.any(0)
            for number, owner in zip(left[gone].tolist(), over[:, gone].argmax(0).tolist(), strict=True):
                kept[chosen[owner]].append(numbers[number])
            left = left[~gone]
        groups += kept.values()
    return groups


def _overlapping(corners: np.ndarray, rows: np.ndarray, columns: np.ndarray, threshold: np.float32) -> np.ndarray:
    with np.errstate(all='ignore'):
        return _ious(corners[:, rows, None], corners[:, columns], 0) >= threshold
