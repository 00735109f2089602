"""Areas of polygons and of their intersections, without building the intersection.

By Green's theorem the area of an intersection is a sum over the parts of each polygon's edges inside the other one.
Each edge is cut by all sides of the other polygon at once: no loop, no sorting, and autograd can differentiate it.

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
    return ((_edges_inside(p, q, True) + _edges_inside(q, p, False)) / 2).clamp(min=0)


def _edges_inside(p: Tensor, q: Tensor, count_shared: bool) -> Tensor:
    """Returns twice the area between the origin and the parts of p's edges inside q.

    An edge that lies on one of q's edges, in the same direction, counts if `count_shared`: once for the two polygons.
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
    outside = ((start <= 0) & (end <= 0) & ~shared).any(-1)
    length = torch.where(outside | ~keep.all(-1), 0, (leave - enter).clamp(min=0))
    # The part from p + enter * edge to p + leave * edge, seen from the origin.
    return (cross(p, edges) * length).sum(-1)
