"""Rotated boxes (x, y, w, h, angle in radians; positive angles are clockwise in the image): IoU, NMS and RoIAlign."""

import torch
from torch import Tensor

from .precision import float32
from .sampling import bins, check, sample, scatter


def _vertices(boxes: Tensor) -> Tensor:
    """Returns the corners (..., 4, 2) of boxes (..., 5), in the direction of growing angles."""
    center, half, angle = boxes[..., :2], boxes[..., 2:4] / 2, boxes[..., 4]
    along = torch.stack([angle.cos(), angle.sin()], -1) * half[..., :1]
    across = torch.stack([-angle.sin(), angle.cos()], -1) * half[..., 1:]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return torch.stack([center + i * along + j * across for i, j in signs], -2)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _edges_inside(p: Tensor, q: Tensor, count_shared: bool) -> Tensor:
    """Returns twice the area between the origin and the parts of p's edges inside q, both (..., 4, 2).

    An edge that lies on one of q's edges, in the same direction, counts if `count_shared`: once for the two boxes.
    """
    edges, sides = p.roll(-1, -2) - p, (q.roll(-1, -2) - q)[..., None, :, :]
    # Distance, times the side's length, of the edges' ends from the sides of q: (..., 4 edges, 4 sides).
    start = _cross(sides, p[..., :, None, :] - q[..., None, :, :])
    end = start.roll(-1, -2)
    tiny = 1e-12 * (q.square().sum(-1).amax(-1) + p.square().sum(-1).amax(-1))[..., None, None]
    start, end = (torch.where(d.abs() <= tiny, 0, d) for d in (start, end))
    shared = (start == 0) & (end == 0)
    keep = ~shared | (((sides * edges[..., :, None, :]).sum(-1) > 0) & count_shared)
    crossing = start / torch.where(start == end, 1, start - end)
    enter = torch.where((start < 0) & (end > 0), crossing, 0.0).amax(-1)
    leave = torch.where((start > 0) & (end < 0), crossing, 1.0).amin(-1)
    outside = ((start <= 0) & (end <= 0) & ~shared).any(-1)
    length = torch.where(outside | ~keep.all(-1), 0, (leave - enter).clamp(min=0))
    # The part from p + enter * edge to p + leave * edge, seen from the origin.
    return (_cross(p, edges) * length).sum(-1)


def _ious(a: Tensor, b: Tensor, iof: bool = False) -> Tensor:
    """Returns IoUs (...) of boxes (..., 5) that broadcast, in float64, relative to the middle of each pair."""
    a, b = torch.broadcast_tensors(a.double(), b.double())
    middle = (a[..., :2] + b[..., :2]) / 2
    p, q = (_vertices(torch.cat([boxes[..., :2] - middle, boxes[..., 2:5]], -1)) for boxes in (a, b))
    inter = ((_edges_inside(p, q, True) + _edges_inside(q, p, False)) / 2).clamp(min=0)
    area_a, area_b = a[..., 2] * a[..., 3], b[..., 2] * b[..., 3]
    empty = (area_a < 1e-14) | (area_b < 1e-14)
    return (inter / (area_a if iof else area_a + area_b - inter)).masked_fill(empty, 0)


def box_iou_rotated(boxes1: Tensor, boxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Writes the IoUs: (N,) of pairs if `aligned`, else (N x M,). Mode 1 divides by the first box's area."""
    if aligned:
        ious.copy_(_ious(boxes1, boxes2, mode_flag == 1))
    elif ious.numel():
        rows = [_ious(part[:, None], boxes2, mode_flag == 1) for part in boxes1.split(64)]
        ious.copy_(torch.cat(rows).flatten())


def nms_rotated(
    dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, labels: Tensor, iou_threshold: float,
    multi_label: bool,
) -> Tensor:  # fmt: skip
    """Returns the indices of the kept boxes, by descending score. As in mmcv, labels have no influence."""
    boxes = dets_sorted[:, :5]
    near = torch.cat([_ious(part[:, None], boxes) >= iou_threshold for part in boxes.split(64)]).cpu()
    removed = torch.zeros(len(boxes), dtype=torch.bool)
    keep = []
    for i in range(len(boxes)):
        if not removed[i]:
            keep.append(i)
            removed |= near[i]
    return order[torch.tensor(keep, dtype=torch.long, device=order.device)]


def _places(rois: Tensor, size: tuple[int, int], scale: float, sampling_ratio: int, aligned: bool, clockwise: bool):
    """Yields chunks of RoIs (K, 6): their numbers, images, and the y and x of their samples, (k, PH, PW, S)."""
    center, sides = rois[:, 1:3] * scale - 0.5 * aligned, rois[:, 3:5] * scale
    if not aligned:
        sides = sides.clamp(min=1)
    angle = -rois[:, 5] if clockwise else rois[:, 5]
    for k, y, x, _ in bins(sides[:, 0], sides[:, 1], size, sampling_ratio):
        cos, sin, width, height, x0, y0 = (
            t[k].view(-1, 1, 1, 1) for t in (angle.cos(), angle.sin(), *sides.T, *center.T)
        )
        y, x = y - height / 2, x - width / 2
        yield k, rois[k, 0].long(), y * cos - x * sin + y0, y * sin + x * cos + x0


def roi_align_rotated_forward(
    input: Tensor, rois: Tensor, output: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float,
    sampling_ratio: int, aligned: bool, clockwise: bool,
) -> None:  # fmt: skip
    features, rois = float32(input, rois)
    rois = rois.to(features.dtype)
    check(rois, len(features), rois[:, 3:5] if aligned else None)
    output.zero_()
    size = pooled_height, pooled_width
    for k, images, y, x in _places(rois, size, spatial_scale, sampling_ratio, aligned, clockwise):
        output[k] = sample(features, images, y, x).mean(-1).to(output)


def roi_align_rotated_backward(
    grad_output: Tensor, rois: Tensor, grad_input: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float,
    sampling_ratio: int, aligned: bool, clockwise: bool,
) -> None:  # fmt: skip
    grad, rois = float32(grad_output, rois)
    rois = rois.to(grad.dtype)
    size = pooled_height, pooled_width
    for k, images, y, x in _places(rois, size, spatial_scale, sampling_ratio, aligned, clockwise):
        per_sample = (grad[k] / y.shape[-1])[..., None].expand(-1, -1, -1, -1, y.shape[-1])
        scatter(per_sample, grad_input, images, y, x)
