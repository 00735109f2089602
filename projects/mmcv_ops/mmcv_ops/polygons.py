"""Areas of polygons and of their intersections, without building the intersection.

By Green's theorem the area of an intersection is a sum over the parts of each polygon's edges inside the other one.
Each edge is cut by all sides of the other polygon at once: no loop and no sorting.

Polygons are (..., corners, 2) tensors; "convex" here includes the direction: corners in the direction in which the
angle from x to y grows (clockwise in an image), so that `area` is positive.
"""

import torch
from torch import Tensor


def cross(a: Tensor, b: Tensor) -> Tensor:
    """Returns the cross products (...) of vectors (..., 2)."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def area(polygons: Tensor) -> Tensor:
    """Returns the signed areas (...), positive for the direction in which the angle from x to y grows."""
    return cross(polygons, polygons.roll(-1, -2)).sum(-1) / 2


def intersection(p: Tensor, q: Tensor) -> Tensor:
    """Returns the areas (...) of the intersections of convex polygons (..., P, 2) and (..., Q, 2)."""
    twice = sum(
        (cross(a, a.roll(-1, -2)) * (leave - enter)).sum(-1)  # the area between the origin and the parts of the edges
        for a, (enter, leave) in ((p, parts_inside(p, q)), (q, parts_inside(q, p, count_shared=False)))
    )
    return (twice / 2).clamp(min=0)


def parts_inside(p: Tensor, q: Tensor, count_shared: Tensor | bool = True) -> tuple[Tensor, Tensor]:
    """Returns where p's edges enter and leave q, (..., P) each, in edge lengths from their first corner.

    Both are 0 for an edge outside of q. An edge that lies on one of q's edges, in the same direction, counts as inside
    if `count_shared`, of all or per edge of q, (Q,): in one of the two polygons it counts once.
    """
    edges, sides = p.roll(-1, -2) - p, (q.roll(-1, -2) - q)[..., None, :, :]
    # Distance, times the side's length, of the edges' ends from the sides of q: (..., P edges, Q sides).
    start = cross(sides, p[..., :, None, :] - q[..., None, :, :])
    end = start.roll(-1, -2)
    tiny = 1e-12 * (q.square().sum(-1).amax(-1) + p.square().sum(-1).amax(-1))[..., None, None]
    start, end = (torch.where(d.abs() <= tiny, 0, d) for d in (start, end))
    shared = (start == 0) & (end == 0)
    along = (sides * edges[..., :, None, :]).sum(-1)
    keep = ~shared | ((along > 0) & count_shared) | (sides == 0).all(-1)  # a side of length 0 has no outside
    crossing = start / torch.where(start == end, 1, start - end)
    enter = torch.where((start < 0) & (end > 0), crossing, 0.0).amax(-1)
    leave = torch.where((start > 0) & (end < 0), crossing, 1.0).amin(-1)
    outside = ((start <= 0) & (end <= 0) & ~shared).any(-1) | ~keep.all(-1) | (leave < enter)
    return enter.masked_fill(outside, 0), leave.masked_fill(outside, 0)


def area_gradient(polygons: Tensor, enter: Tensor | float = 0.0, leave: Tensor | float = 1.0) -> Tensor:
    """Returns the gradient (..., P, 2) of an area that the edges of polygons (..., P, 2) bound.

    Where only the parts from `enter` to `leave` (..., P) are its boundary, as `parts_inside` returns them, it is the
    gradient of the area of the intersection: an edge that moves by d adds the cross product of d and its part. So a
    corner on an edge of the other polygon has no influence.
    """
    edges = polygons.roll(-1, -2) - polygons
    normals = torch.stack([edges[..., 1], -edges[..., 0]], -1)
    of_end = torch.as_tensor((leave**2 - enter**2) / 2)[..., None] * normals
    of_start = torch.as_tensor(leave - enter)[..., None] * normals - of_end
    return of_start + of_end.roll(1, -2)
