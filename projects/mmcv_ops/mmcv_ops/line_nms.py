"""Non-maximum suppression of lanes (LaneATT, CLRNet) by their mean horizontal distance.

A lane is 5 + 72 numbers: two scores, the start as a fraction of the 71 strips, x, the length in strips, and one x
coordinate per strip boundary.
"""

import torch
from torch import Tensor

from .checks import check_boxes
from .precision import float32

_OFFSETS = 72


def line_nms_forward(boxes: Tensor, scores: Tensor, thresh: float, top_k: int) -> list[Tensor]:
    """Returns the indices of the kept lanes, their number, and per lane the number of the lane that suppressed it.

    The lanes are compared in the order of their scores, as in LaneATT. mmcv's CUDA kernel applies this order to one of
    the two compared lanes only, so that its result is right for sorted lanes only.

    Args:
        boxes: (N, 77), lanes.
        scores: (N,).
        thresh: Lanes that are closer than this to a kept lane, on average over the common strips, are removed.
        top_k: At most this many lanes are kept.

    Returns:
        Indices (N,), filled up with zeros; the number of kept lanes, (); and per lane (N,) the 1-based rank of the kept
        lane that suppressed it, 0 where there is none.
    """
    check_boxes('line_nms', boxes, scores)
    lanes, scores = float32(boxes, scores)
    if lanes.shape[1] != 5 + _OFFSETS:
        raise ValueError(f'line_nms: lanes have {lanes.shape[1]} numbers, expected {5 + _OFFSETS}')
    order = scores.sort(0, descending=True)[1]
    lanes = lanes[order]
    first = (lanes[:, 2] * (_OFFSETS - 1) + 0.5).int()
    last = first + lanes[:, 4].int() - 1
    x = lanes[:, 5:]
    strips = torch.arange(_OFFSETS, device=x.device)
    keep, parents = torch.zeros_like(order), torch.zeros_like(order)
    removed = torch.zeros(len(order), dtype=torch.bool, device=x.device)
    count = 0
    for i in range(len(order)):
        if removed[i]:
            continue
        start, end = torch.maximum(first[i], first[i:]), torch.minimum(last[i], last[i:]).clamp(max=_OFFSETS - 1)
        common = (strips >= start[:, None]) & (strips <= end[:, None])
        distance = ((x[i] - x[i:]).abs() * common).sum(1)
        near = (distance < thresh * (end - start + 1)) & (end >= start) & (start >= 0)
        near[0] = True
        removed[i:] |= near
        keep[count] = order[i]
        count += 1
        parents[order[i:][near]] = count
        if count == top_k:
            break
    return [keep, torch.tensor(min(count, top_k), device=x.device), parents]
