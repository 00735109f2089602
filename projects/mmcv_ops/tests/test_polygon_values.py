"""Quadrilaterals, point sets and rotated boxes against slow polygons, and gradients against difference quotients."""

import mmcv
import numpy as np
import polygon_reference as reference
import pytest
import torch
from mmcv_cases import random, rotated_boxes
from mmcv_ops import ext

OLD = mmcv.__version__.startswith('2.0.')


def quads(n, seed=1, scale=20.0):
    """Convex quadrilaterals (n, 8) of any shape, every second one in the other direction: points on ellipses."""
    center, size = (
        random(n, 1, 2, seed=seed, scale=scale, grad=False),
        random(n, 1, 2, seed=seed + 1, grad=False) * 10 + 2,
    )
    angle = (random(n, 4, seed=seed + 2, grad=False) + torch.arange(4)) * (torch.pi / 2)
    corners = center + size * torch.stack([angle.cos(), angle.sin()], -1)
    return torch.where(torch.arange(n)[:, None, None] % 2 == 0, corners, corners.flip(1)).flatten(1)


def point_sets(n, seed=5, scale=20.0):
    center, spread = random(n, 1, 2, seed=seed, scale=scale, grad=False), random(n, 9, 2, seed=seed + 1, grad=False)
    return (center + spread * 12 - 6).flatten(1)


def test_quadrilaterals_of_any_shape(ops):
    a, b = quads(12), quads(15, seed=7)
    ious = ops.box_iou_quadri(a, b)
    expected = np.zeros((12, 15))
    for i, j in np.ndindex(12, 15):
        p, q = a[i].double().view(4, 2).numpy(), b[j].double().view(4, 2).numpy()
        inter = reference.intersection(p, q)
        expected[i, j] = inter / (abs(reference.area(p)) + abs(reference.area(q)) - inter)
    np.testing.assert_allclose(ious, expected, rtol=0, atol=1e-6)
    assert (expected > 0.05).sum() > 20


def test_concave_quadrilateral(ops):
    """An arrow of area 6 in a square of area 16: the square covers all of it."""
    arrow = torch.tensor([[0.0, 0, 4, 1, 0, 4, 1, 1]])
    area = abs(reference.area(arrow[0].numpy()))
    square = torch.tensor([[0.0, 0, 4, 0, 4, 4, 0, 4]])
    assert ops.box_iou_quadri(arrow, square, 'iof').item() == pytest.approx(1, abs=1e-6)
    assert ops.box_iou_quadri(arrow, square).item() == pytest.approx(area / 16, abs=1e-6)


def test_far_boxes_are_zero_and_near_ones_are_compared(ops):
    """The test of circles leaves out only pairs without an intersection."""
    boxes = rotated_boxes(80, size=60)
    all_pairs = ops.box_iou_rotated(boxes.repeat_interleave(80, 0), boxes.repeat(80, 1), aligned=True).view(80, 80)
    assert torch.equal(ops.box_iou_rotated(boxes, boxes), all_pairs)
    assert (all_pairs == 0).sum() > 2000
    assert ((all_pairs > 0) & (all_pairs < 1)).sum() > 300


@pytest.mark.skipif(OLD, reason='mmcv 2.0.1 takes tensors on a GPU only')
def test_points_in_polygons(ops):
    polygons, points = quads(9), random(300, 2, seed=11, scale=24, grad=False)
    inside = ops.points_in_polygons(points, polygons)
    for j, polygon in enumerate(polygons.double().view(-1, 4, 2).numpy()):
        convex = polygon if reference.area(polygon) > 0 else polygon[::-1]
        for i, p in enumerate(points.double().numpy()):
            turns = [reference.turn(a, b, p) for a, b in zip(convex, np.roll(convex, -1, 0), strict=True)]
            assert inside[i, j] == (min(turns) > 0)
    assert 50 < inside.sum() < 2000


@pytest.mark.skipif(OLD, reason='mmcv 2.0.1 takes tensors on a GPU only')
def test_points_on_the_boundary(ops):
    """As in mmcv's kernel: the count stops there."""
    square = torch.tensor([[0.0, 0, 4, 0, 4, 4, 0, 4]])
    points = torch.tensor([[2.0, 2], [0, 2], [4, 2], [2, 0], [2, 4], [0, 0], [4, 4], [5, 2], [-1, 2]])
    assert ops.points_in_polygons(points, square)[:, 0].tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0]


def test_convex_iou(ops):
    points, polygons = point_sets(14), quads(11)
    ious = ops.convex_iou(points, polygons)
    expected = [
        [reference.iou_and_giou(p.reshape(9, 2), q.reshape(4, 2))[0] for q in polygons.double().numpy()]
        for p in points.double().numpy()
    ]
    np.testing.assert_allclose(ious, expected, rtol=0, atol=1e-6)
    assert (ious > 0.05).sum() > 20


def test_convex_giou_and_its_gradient(ops):
    points, polygons = point_sets(10), quads(10)
    gious, grads = ops.convex_giou(points, polygons)
    step = 1e-6
    for i in range(10):
        p, q = points[i].double().numpy(), polygons[i].double().numpy().reshape(4, 2)
        assert gious[i].item() == pytest.approx(reference.iou_and_giou(p.reshape(9, 2), q)[1], abs=1e-6)
        for k in range(18):
            moved = [p + sign * step * np.eye(18)[k] for sign in (1, -1)]
            up, down = (reference.iou_and_giou(m.reshape(9, 2), q)[1] for m in moved)
            assert grads[i, k].item() == pytest.approx((up - down) / 2 / step, abs=1e-5)
    assert grads.abs().sum() > 1


def _one_sided(polygon, points, coordinate):
    """Returns the derivatives of the GIoU on both sides, in ascending order."""
    step, moved = 1e-6, []
    for sign in (1, 0, -1):
        place = points.copy()
        place[coordinate] += sign * step
        moved.append(reference.iou_and_giou(place.reshape(9, 2), polygon)[1])
    return sorted([(moved[0] - moved[1]) / step, (moved[1] - moved[2]) / step])


INNER = [(1.6, 1.9), (1.9, 1.6), (2, 2), (2.2, 2.1), (2.1, 2.3)]  # inside of the hulls


@pytest.mark.parametrize(
    'corners',
    [
        [(1.5, 1.5), (3.5, 1.5), (3.5, 2.5), (2.5, 3.5)],  # a side goes through the square's corner
        [(1, 1), (3, 1), (3, 3), (1, 3)],  # equal
        [(1, 1), (2.5, 1), (2.5, 2.5), (1, 2.5)],  # two sides and a corner in common
        [(1.5, 1.5), (2.5, 1.5), (2.5, 2.5), (1.5, 2.5)],  # inside
        [(0, 2), (2, 0), (4, 2), (2, 4)],  # the square's corners are on the sides
        [(1, 2), (2, 1), (3, 2), (2, 3)],  # corners on the square's sides
        [(1, 1), (3, 3), (1, 3), (1.2, 2.8)],  # a side on the square's diagonal
    ],
)
def test_convex_giou_gradient_at_ties(ops, corners):
    square = np.array([[1, 1], [3, 1], [3, 3], [1, 3]], float)
    points = np.array((corners + INNER), float).flatten()
    grads = ops.convex_giou(torch.tensor(points)[None], torch.tensor(square).view(1, 8))[1][0]
    for k in range(18):
        low, high = _one_sided(square, points, k)
        assert low - 1e-4 <= grads[k] <= high + 1e-4, (k, low, grads[k], high)
    assert grads.isfinite().all()


def test_convex_giou_gradient_of_equal_points(ops):
    """The first one has the gradient with which all of them are moved."""
    square, at = torch.tensor([[1.0, 1, 3, 1, 3, 3, 1, 3]]).double(), torch.tensor([[4.0, 5] * 9]).double()
    grads = ops.convex_giou(at, square)[1].view(9, 2)
    up, down = (ops.convex_giou(at + torch.tensor([step, 0] * 9), square)[0] for step in (1e-6, -1e-6))
    assert grads[0, 0].item() == pytest.approx((up - down).item() / 2e-6, abs=1e-6)
    assert grads[0, 0] < -0.01
    assert not grads[1:].any()


def test_convex_giou_of_collinear_and_equal_points(ops):
    square = torch.tensor([0.0, 0, 4, 0, 4, 4, 0, 4])
    grid = torch.tensor([[x, y] for y in (0.0, 2, 4) for x in (0.0, 2, 4)]).flatten()  # five points are on no corner
    line = torch.tensor([[float(i), 0.0] for i in range(9)]).flatten()
    point = torch.full((18,), 2.0)
    gious, grads = ops.convex_giou(torch.stack([grid, line, point]), square.repeat(3, 1))
    assert gious.tolist() == pytest.approx([1, -8 / 24, 0], abs=1e-6)  # the hull of line and square has an area of 24
    assert grads.isfinite().all()


def test_min_area_polygons(ops):
    points = point_sets(40)
    corners = ops.min_area_polygons(points).double().view(-1, 4, 2).numpy()
    for p, c in zip(points.double().view(-1, 9, 2).numpy(), corners, strict=True):
        sides = np.roll(c, -1, 0) - c
        lengths = np.linalg.norm(sides, axis=1)
        assert lengths[0] * lengths[1] == pytest.approx(reference.smallest_rectangle(p), rel=1e-5)
        np.testing.assert_allclose((sides * np.roll(sides, -1, 0)).sum(1), 0, atol=1e-3)
        for a, b in zip(c, np.roll(c, -1, 0), strict=True):
            turns = np.array([reference.turn(a, b, q) for q in p]) * np.sign(reference.area(c))
            assert turns.min() > -1e-3 * lengths.max()


def test_min_area_polygon_of_a_grid(ops):
    """In the order of mmcv's kernel: (x2, y1), (x1, y1), (x1, y2), (x2, y2), in axes turned by less than 90 degrees."""
    grid = torch.tensor([[x, y] for y in (1.0, 2, 3) for x in (5.0, 7, 9)]).flatten()[None]
    torch.testing.assert_close(ops.min_area_polygons(grid)[0], torch.tensor([9.0, 1, 5, 1, 5, 3, 9, 3]))


def test_diff_iou_rotated(ops):
    """mmcv's differentiable IoU calls the sorting of vertices: values of the other IoU, gradients by gradcheck."""
    a, b = rotated_boxes(60), rotated_boxes(60, seed=5)
    expected = ops.box_iou_rotated(a, b, aligned=True)
    torch.testing.assert_close(ops.diff_iou_rotated_2d(a[None], b[None])[0], expected, rtol=0, atol=1e-5)
    same = a[None].double()  # in float32 mmcv misses some corners of equal boxes
    torch.testing.assert_close(ops.diff_iou_rotated_2d(same, same)[0].float(), torch.ones(60), rtol=0, atol=1e-4)
    boxes = [t[:12][None].double().requires_grad_() for t in (a, b)]
    assert torch.autograd.gradcheck(ops.diff_iou_rotated_2d, boxes, atol=1e-4)
    assert (expected > 0.05).sum() >= 10


def test_sorted_vertices():
    """A square of two corners and two crossings, in a list of 24; and too few vertices."""
    vertices, mask = torch.zeros(1, 2, 24, 2), torch.zeros(1, 2, 24, dtype=torch.bool)
    for i, place in ((1, (1.0, -1.0)), (6, (-1.0, 1.0)), (8, (1.0, 1.0)), (20, (-1.0, -1.0))):
        vertices[0, 0, i], mask[0, 0, i] = torch.tensor(place), True
    mask[0, 1, :2] = True
    index = ext.diff_iou_rotated_sort_vertices_forward(vertices, mask, mask.sum(-1).int())
    assert index.dtype == torch.int32
    assert index[0].tolist() == [[20, 1, 8, 6, 20, 9, 9, 9, 9], [8] * 9]


def test_chamfer_distance(ops):
    a, b = random(2, 7, 2), random(2, 5, 2, seed=1)
    dist1, dist2, idx1, idx2 = ops.chamfer_distance(a, b)
    apart = ((a[:, :, None] - b[:, None]) ** 2).sum(-1).detach().double().numpy()
    np.testing.assert_allclose(dist1.detach(), apart.min(2), rtol=1e-5)
    np.testing.assert_allclose(dist2.detach(), apart.min(1), rtol=1e-5)
    assert idx1.tolist() == apart.argmin(2).tolist()
    assert idx2.tolist() == apart.argmin(1).tolist()
    assert idx1.dtype == torch.int32
    leaves = [t.detach().double().requires_grad_() for t in (a, b)]
    if ops.chamfer_distance(*leaves)[0].dtype != torch.float64:
        return  # mmcv 2.0.1 and 2.1.0 make float32 outputs
    assert torch.autograd.gradcheck(lambda a, b: ops.chamfer_distance(a, b)[:2], leaves)
