"""Quadrilaterals (x1, y1, ..., x4, y4) of any shape and direction: IoU, NMS, and points inside them.

A simple quadrilateral is the sum of two triangles with signed areas. So concave ones, and those without right angles,
have their true area, which mmcv's kernels miss.
"""

import torch
from torch import Tensor

from .checks import check_boxes
from .pairs import Form, nms, ratio, write_ious
from .polygons import area, area_gradient, intersection, parts_inside


def triangles(quads: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Returns two triangles (..., 3, 2) in positive direction of quadrilaterals (..., 4, 2), and their signs (...).

    The last side of a triangle is the diagonal.
    """
    parts = []
    for corners in ([0, 1, 2], [2, 3, 0]):
        triangle = quads[..., corners, :]
        sign = area(triangle).sign()
        parts.append((torch.where(sign[..., None, None] < 0, triangle.flip(-2), triangle), sign))
    return parts


def intersection_with_quads(convex: Tensor, quads: Tensor) -> Tensor:
    """Returns the areas (N,) of the intersections of convex polygons (N, P, 2) and quadrilaterals (N, 4, 2)."""
    signed = sum(sign * intersection(convex, triangle) for triangle, sign in triangles(quads))
    return signed.abs()


def gradient_with_quads(convex: Tensor, quads: Tensor) -> Tensor:
    """Returns the gradient (N, P, 2) of `intersection_with_quads` with respect to the convex polygons.

    Edges that lie on a side of the quadrilateral are taken as outside, those on the diagonal as inside.
    """
    diagonal = torch.tensor([False, False, True], device=quads.device)
    signed = sum(
        sign[:, None, None] * area_gradient(convex, *parts_inside(convex, triangle, diagonal))
        for triangle, sign in triangles(quads)
    )
    return signed * area(quads).sign()[:, None, None]


def _ious(a: Tensor, b: Tensor, iof: bool) -> Tensor:
    """Returns IoUs (N,) of pairs of quadrilaterals (N, 4, 2) in float64, computed relative to the middle of a pair."""
    middle = (a.mean(1, keepdim=True) + b.mean(1, keepdim=True)) / 2
    a, b = a - middle, b - middle
    inter = sum(
        sign_a * sign_b * intersection(part_a, part_b)
        for part_a, sign_a in triangles(a)
        for part_b, sign_b in triangles(b)
    ).abs()
    return ratio(inter, area(a).abs(), area(b).abs(), iof)


def circles(points: Tensor) -> tuple[Tensor, Tensor]:
    """Returns centers (N, 2) and radii (N,) of circles that contain the points (N, P, 2)."""
    center = (points.amin(1) + points.amax(1)) / 2
    return center, (points - center[:, None]).norm(dim=-1).amax(-1)


_QUADRILATERALS = Form(circles, _ious)


def box_iou_quadri(boxes1: Tensor, boxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Writes the IoUs of boxes (N, 8) and (M, 8), as `box_iou_rotated`."""
    a, b = (boxes.unflatten(1, (4, 2)) for boxes in (boxes1, boxes2))
    write_ious('box_iou_quadri', _QUADRILATERALS, a, b, ious, mode_flag, aligned)


def nms_quadri(
    dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, iou_threshold: float, multi_label: bool
) -> Tensor:
    """Returns the indices of the kept boxes, by descending score: `nms_rotated` for (N, 8), or (N, 9) with labels."""
    check_boxes('nms_quadri', dets, scores)
    return nms(_QUADRILATERALS, dets_sorted[:, :8].unflatten(1, (4, 2)), order, iou_threshold)


def points_in_polygons_forward(points: Tensor, polygons: Tensor, output: Tensor) -> None:
    """Writes 1 where a point is inside, (B, M), for points (B, 2) and quadrilaterals (M, 8).

    A ray in the direction of x is counted, as in mmcv: a point on a side stops the count of the crossings.
    """
    (px, py), corners = points.float().T[..., None], polygons.float().unflatten(1, (4, 2))
    crossings = torch.zeros_like(output, dtype=torch.int)
    counting = torch.ones_like(crossings, dtype=torch.bool)
    for i in range(4):
        (sx, sy), (tx, ty) = corners[:, i].T, corners[:, i - 1].T
        corner = ((sx == px) & (sy == py)) | ((tx == px) & (ty == py))
        cut = (sy < py) != (ty < py)
        x = sx + (py - sy) * (tx - sx) / torch.where(cut, ty - sy, 1)
        counting &= ~corner & ~(cut & (x == px))
        crossings += counting & cut & (x > px)
    output.copy_(crossings % 2)
