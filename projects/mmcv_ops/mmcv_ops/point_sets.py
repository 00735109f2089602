"""Sets of nine points (RepPoints) as their convex hulls, and distances between sets.

IoU and GIoU of hulls and quadrilaterals with gradients, the smallest rectangle around a hull, Chamfer distance.
"""

import math

import torch
from torch import Tensor

from .checks import check_shapes
from .pairs import PAIRS, meeting_pairs
from .polygons import area, area_gradient, cross
from .precision import float32, float64
from .quadrilaterals import circles, gradient_with_quads, intersection_with_quads


def hulls(points: Tensor) -> Tensor:
    """Returns the corners (N, P) of the convex hulls of points (N, P, 2), as indices, filled up with the first one.

    Gift wrapping: from the lowest point to the one that has all others on its left, until the first one is back.
    """
    rows = torch.arange(len(points), device=points.device)
    lowest = points[..., 1] == points[..., 1].amin(1, keepdim=True)
    current = first = torch.where(lowest, points[..., 0], torch.inf).argmin(1)
    corners, closed = [first], torch.zeros_like(rows, dtype=torch.bool)
    for _ in range(points.shape[1] - 1):
        origin, best = points[rows, current], current
        for k in range(points.shape[1]):
            to_best, to_point = points[rows, best] - origin, points[:, k] - origin
            side = cross(to_best, to_point)
            farther = to_point.square().sum(-1) > to_best.square().sum(-1)
            best = torch.where((side < 0) | ((side == 0) & farther), k, best)
        closed |= (points[rows, best] == points[rows, first]).all(-1)
        current = torch.where(closed, first, best)
        corners.append(current)
    return torch.stack(corners, 1)


def _corners(points: Tensor, indices: Tensor) -> Tensor:
    """Returns the corners (N, P, 2) of hulls from `hulls`. Repeated corners are sides of length 0."""
    return points.gather(1, indices[..., None].expand(-1, -1, 2))


def _of_corners(gradients: Tensor, indices: Tensor, points: Tensor) -> Tensor:
    """Returns the gradients (N, P, 2) of points (N, P, 2) from those of hulls' corners, which `hulls` numbers."""
    return torch.zeros_like(points).scatter_add_(1, indices[..., None].expand(-1, -1, 2), gradients)


def _between_corners(hull: Tensor, points: Tensor) -> Tensor:
    """Returns the gradients (N, P, 2) of a hull's area for points that lie on its sides and are moved outwards."""
    side = (hull.roll(-1, 1) - hull)[:, None]
    start = points[:, :, None] - hull[:, None]  # (N, P, sides, 2)
    along, squared = (start * side).sum(-1), side.square().sum(-1)
    tiny = 1e-12 * points.square().sum(-1).amax(1)[:, None, None]
    on = (cross(side, start).abs() <= tiny) & (along > tiny) & (squared - along > tiny)
    return (torch.stack([side[..., 1], -side[..., 0]], -1) / 2 * on[..., None]).sum(2)


def _areas(hull: Tensor, quads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the areas (N,) of intersections and of unions, and whether the points are on one line: no area."""
    size = area(hull)
    flat = size <= 1e-10 * hull.square().amax((1, 2))
    inter = intersection_with_quads(hull, quads).masked_fill(flat, 0)
    return inter, size + area(quads).abs() - inter, flat


def convex_iou(pointsets: Tensor, polygons: Tensor, ious: Tensor) -> None:
    """Writes the IoUs (N, K) of the hulls of point sets (N, 18) and quadrilaterals (K, 8)."""
    check_shapes('convex_iou', pointsets=(pointsets, (None, 18)), polygons=(polygons, (None, 8)))
    points, quads = float64(pointsets, polygons)
    points, quads = points.unflatten(1, (9, 2)), quads.unflatten(1, (4, 2))
    hull, result = _corners(points, hulls(points)), points.new_zeros(ious.shape)
    for i, j in meeting_pairs(*circles(points), *circles(quads)):
        middle = quads[j].mean(1, keepdim=True)
        inter, union, _ = _areas(hull[i] - middle, quads[j] - middle)
        result[i, j] = inter / union
    ious.copy_(result)


def convex_giou(pointsets: Tensor, polygons: Tensor, output: Tensor) -> None:
    """Writes per pair the gradient of the GIoU with respect to the 18 coordinates, and the GIoU: (N, 19).

    Where the hull touches the quadrilateral it is the derivative in the direction that enlarges the hull. Points on a
    side of their own hull have none, and of equal points the first one has that of the corner.

    Args:
        pointsets: (N, 18).
        polygons: (N, 8).
        output: Written.
    """
    check_shapes('convex_giou', pointsets=(pointsets, (None, 18)), polygons=(polygons, (len(pointsets), 8)))
    points, quads = (t.unflatten(1, (-1, 2)) for t in float64(pointsets.detach(), polygons.detach()))
    middle = quads.mean(1, keepdim=True)
    for part in range(0, len(points), PAIRS):
        rows = slice(part, part + PAIRS)
        own, quad = points[rows] - middle[rows], quads[rows] - middle[rows]
        both = torch.cat([own, quad], 1)
        indices, outer = hulls(own), hulls(both)
        hull, around = _corners(own, indices), _corners(both, outer)
        inter, union, flat = _areas(hull, quad)
        outside = area(around)
        # of GIoU = inter / union + union / outside - 1, where union = the hull's area + the quadrilateral's - inter
        of_union = 1 / outside - inter / union**2
        grad = _of_corners(area_gradient(around), outer, both)
        grad += _between_corners(around, both) * torch.zeros_like(both[..., :1]).scatter_(1, indices[..., None], 1)
        grad *= (-union / outside**2)[:, None, None]
        of_inter = (1 / union - of_union).masked_fill(flat, 0)[:, None, None] * gradient_with_quads(hull, quad)
        grad += _of_corners(of_inter + of_union[:, None, None] * area_gradient(hull), indices, both)
        giou = inter / union + union / outside - 1
        output[rows] = torch.cat([grad[:, :9].flatten(1), giou[:, None]], 1).to(output)


def min_area_polygons(pointsets: Tensor, polygons: Tensor) -> None:
    """Writes the corners (N, 8) of the smallest rectangles around point sets (N, 18).

    One side of it lies on a side of the hull. In its own axes the corners are (x2, y1), (x1, y1), (x1, y2), (x2, y2).
    """
    check_shapes('min_area_polygons', pointsets=(pointsets, (None, 18)))
    points = float64(pointsets)[0].unflatten(1, (9, 2))
    middle = points.mean(1, keepdim=True)
    points = points - middle
    hull = _corners(points, hulls(points))
    side = hull.roll(-1, 1) - hull
    angle = torch.atan2(side[..., 1], side[..., 0]) % (math.pi / 2)
    angle = torch.where(angle > math.pi / 2 - 1e-6, 0, angle)  # a multiple of 90 degrees, with a rounding error
    cos, sin = angle.cos()[..., None], angle.sin()[..., None]
    x, y = points[:, None, :, 0], points[:, None, :, 1]
    u, v = x * cos + y * sin, y * cos - x * sin  # (N, sides, points)
    size = (u.amax(-1) - u.amin(-1)) * (v.amax(-1) - v.amin(-1))
    size = size.masked_fill((side == 0).all(-1) & (side != 0).any(-1).any(-1, keepdim=True), torch.inf)
    rows, best = torch.arange(len(points), device=points.device), size.argmin(1)
    u, v, cos, sin = (t[rows, best] for t in (u, v, cos, sin))
    corners = [
        torch.cat([a[:, None] * cos - b[:, None] * sin, a[:, None] * sin + b[:, None] * cos], 1)
        for a, b in (
            (u.amax(-1), v.amin(-1)), (u.amin(-1), v.amin(-1)), (u.amin(-1), v.amax(-1)), (u.amax(-1), v.amax(-1))
        )
    ]  # fmt: skip
    polygons.copy_((torch.stack(corners, 1) + middle).flatten(1))


def chamfer_distance_forward(
    xyz1: Tensor, xyz2: Tensor, dist1: Tensor, dist2: Tensor, idx1: Tensor, idx2: Tensor
) -> None:
    """Writes the squared distance to the nearest point of the other set, and its index.

    Args:
        xyz1: (B, N, 2).
        xyz2: (B, M, 2).
        dist1: (B, N), written.
        dist2: (B, M), written.
        idx1: (B, N), written.
        idx2: (B, M), written.
    """
    check_shapes('chamfer_distance', xyz2=(xyz2, (len(xyz1), None, xyz1.shape[2])))
    if 0 in (xyz1.shape[1], xyz2.shape[1]):
        shapes = f'{tuple(xyz1.shape)} and {tuple(xyz2.shape)}'
        raise ValueError(f'chamfer_distance: the sets have the shapes {shapes}, expected at least one point in each')
    for points, others, distance, index in ((xyz1, xyz2, dist1, idx1), (xyz2, xyz1, dist2, idx2)):
        points, others = float32(points, others)
        rows = max(1, (1 << 20) // max(1, others.shape[1]))
        for first in range(0, points.shape[1], rows):
            part = slice(first, first + rows)
            apart = points[:, part, None] - others[:, None]
            nearest, which = (apart[..., 0].square() + apart[..., 1].square()).min(-1)
            distance[:, part], index[:, part] = nearest.to(distance), which.to(index)


def chamfer_distance_backward(
    xyz1: Tensor, xyz2: Tensor, idx1: Tensor, idx2: Tensor, grad_dist1: Tensor, grad_dist2: Tensor, grad_xyz1: Tensor,
    grad_xyz2: Tensor,
) -> None:  # fmt: skip
    """Adds the gradients of both sets to `grad_xyz1` and `grad_xyz2`."""
    sets = (xyz1, xyz2, idx1, grad_dist1, grad_xyz1, grad_xyz2), (xyz2, xyz1, idx2, grad_dist2, grad_xyz2, grad_xyz1)
    for points, others, index, grad, grad_points, grad_others in sets:
        where = index.long()[..., None].expand(-1, -1, 2)
        part = 2 * grad[..., None] * (points - others.gather(1, where))
        grad_points.add_(part)
        grad_others.scatter_add_(1, where, -part.to(grad_others))  # mmcv 2.0.1 gives float32 for float64


def diff_iou_rotated_sort_vertices_forward(vertices: Tensor, mask: Tensor, num_valid: Tensor) -> Tensor:
    """Returns the corners of intersections in the order of their angle: (B, N, 9) indices, closed by the first one.

    Places after the closed polygon, and all places where fewer than three vertices are valid, get the index of an
    intersection that is not valid: mmcv's vertices are 0 there.

    Args:
        vertices: (B, N, 24, 2), relative to the mean of the valid ones: eight corners, and 16 crossings of sides.
        mask: (B, N, 24), whether a vertex is valid.
        num_valid: (B, N), how many are.
    """
    valid = mask.bool()
    pad = 8 + valid[..., 8:].int().argmin(-1, keepdim=True)
    angle = torch.atan2(vertices[..., 1], vertices[..., 0]).float().masked_fill(~valid, torch.inf)
    angle, order = angle.sort(dim=-1, stable=True)
    # More than eight vertices are the same ones twice, with rounding errors: the first of equal ones stays.
    place = vertices.float().gather(-2, order[..., None].expand(-1, -1, -1, 2))
    near = 1e-6 * (vertices.float() * valid[..., None]).square().sum(-1).amax(-1, keepdim=True).clamp(min=1e-30)
    twice = ((place - place.roll(1, -2)).square().sum(-1) <= near) & (num_valid[..., None] > 8)
    twice[..., 0] = False
    angle, again = angle.masked_fill(twice, torch.inf).sort(dim=-1, stable=True)
    order, count = order.gather(-1, again), angle.isfinite().sum(-1, keepdim=True).clamp(max=8)
    places = torch.arange(9, device=vertices.device)
    indices = torch.where(places < count, order[..., :9], torch.where(places == count, order[..., :1], pad))
    return torch.where(num_valid[..., None] < 3, pad, indices).int()
