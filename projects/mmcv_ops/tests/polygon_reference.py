"""Slow polygons in float64 with loops: hulls by sorting, intersections by cutting a polygon at each side of another."""

import numpy as np


def area(polygon):
    """Signed area of corners (n, 2)."""
    x, y = np.asarray(polygon).reshape(-1, 2).T
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def hull(points):
    """Convex hull of points (n, 2) in positive direction, by the monotone chain."""
    points = sorted({tuple(map(float, p)) for p in points})
    if len(points) < 3:
        return np.array(points)
    chains = []
    for sequence in (points, points[::-1]):
        chain = []
        for p in sequence:
            while len(chain) > 1 and turn(chain[-2], chain[-1], p) <= 0:
                chain.pop()
            chain.append(p)
        chains.append(chain[:-1])
    return np.array(chains[0] + chains[1])


def turn(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def cut(subject, convex):
    """Corners of the part of a polygon inside a convex one in positive direction (Sutherland and Hodgman)."""
    for a, b in zip(convex, np.roll(convex, -1, 0), strict=True):
        kept = []
        for p, q in zip(subject, np.roll(subject, -1, 0), strict=True):
            inside_p, inside_q = turn(a, b, p), turn(a, b, q)
            if inside_p >= 0:
                kept.append(p)
            if (inside_p < 0) != (inside_q < 0):
                kept.append(p + (q - p) * inside_p / (inside_p - inside_q))
        if not kept:
            return np.zeros((0, 2))
        subject = np.array(kept)
    return subject


def intersection(polygon, convex):
    """Area of the part of a simple polygon (n, 2) inside a convex one of any direction."""
    convex = np.asarray(convex, float)
    convex = convex if area(convex) > 0 else convex[::-1]
    return abs(area(cut(np.asarray(polygon, float), convex)))


def iou_and_giou(points, quad):
    """Of the hull of points (n, 2) and a convex quadrilateral (4, 2)."""
    around = hull(points)
    inter = intersection(quad, around)
    union = area(around) + abs(area(quad)) - inter
    both = area(hull(np.concatenate([points, quad])))
    return inter / union, inter / union - (both - union) / both


def smallest_rectangle(points):
    """Area of the smallest rectangle around points (n, 2): one of its sides is on a side of the hull."""
    corners = hull(points)
    areas = []
    for a, b in zip(corners, np.roll(corners, -1, 0), strict=True):
        along = (b - a) / np.linalg.norm(b - a)
        across = np.array([-along[1], along[0]])
        areas.append(np.ptp(points @ along) * np.ptp(points @ across))
    return min(areas)
