"""More operators on features that mmcv computes on an accelerator only: against loops, and by gradcheck."""

import math

import mmcv_reference as reference
import numpy as np
import pytest
import torch
from mmcv_cases import random, rois, rotated_boxes


def assert_close(value, expected, tolerance=2e-6):
    value, expected = (np.asarray(a.detach() if torch.is_tensor(a) else a, np.float64) for a in (value, expected))
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


def slow(**sizes):
    return pytest.param(sizes, marks=pytest.mark.slow)


def double(tensor):
    return tensor.detach().double().requires_grad_()


@pytest.mark.parametrize(
    ('ratio', 'clockwise'),
    [(2, True), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((0, False), (0, True), (2, False)))],
)
def test_riroi_align_rotated(ops, ratio, clockwise):
    x = random(2, 8, 10, 12)  # two groups of four orientations
    regions = torch.cat([(torch.arange(12) % 2).float()[:, None], rotated_boxes(12, 100)], 1)
    arguments = (3, 2), 0.11, ratio, 4, clockwise
    output = ops.riroi_align_rotated(x, regions, *arguments)
    assert_close(output, reference.riroi_align(x.detach().numpy(), regions.double().numpy(), *arguments), 1e-5)
    regions = regions[:4].double() * torch.tensor([1, 0.4, 0.4, 0.4, 0.4, 1])
    x = double(x[:, :, :3, :4])
    assert torch.autograd.gradcheck(lambda x: ops.riroi_align_rotated(x, regions, *arguments), x)


@pytest.mark.parametrize('pool_size', [1, pytest.param(4, marks=pytest.mark.slow)])
def test_border_align(ops, pool_size):
    x = random(2, 12, 4, 5)
    boxes = rois(12, size=5)[:, 1:].view(2, 6, 4)
    output = ops.border_align(x, boxes, pool_size)
    assert_close(output, reference.border_align(x.detach().numpy(), boxes.double().numpy(), pool_size), 1e-5)
    boxes = boxes[:, :2].double()
    assert torch.autograd.gradcheck(lambda x: ops.border_align(x, boxes, pool_size), double(x[:, :4]))


def test_rotated_feature_align_of_flat_boxes(ops):
    """As mmrotate's R3Det calls it."""
    x, refined = random(2, 3, 5, 6), rotated_boxes(60, 50)
    expected = ops.rotated_feature_align(x, refined.view(2, 5, 6, 5), 0.12, 5)
    assert torch.equal(ops.rotated_feature_align(x, refined, 0.12, 5), expected)


def test_border_align_in_chunks(ops, monkeypatch):
    x, boxes = random(2, 12, 7, 9), rois(12, size=9)[:, 1:].view(2, 6, 4)
    expected = ops.border_align(x, boxes, 4)
    monkeypatch.setattr('mmcv_ops.border_align._VALUES', 1)
    assert torch.equal(ops.border_align(x, boxes, 4), expected)


def test_prroi_pool(ops):
    x, regions = random(2, 2, 6, 7), rois(8, size=80) + torch.tensor([0, -10.0, -10, 0, 0])
    output = ops.prroi_pool(x, regions, (2, 3), 0.08)
    assert_close(output, reference.prroi_pool(x.detach().numpy(), regions.double().numpy(), (2, 3), 0.08, 500), 1e-3)
    flat = torch.full_like(x, 3.0)
    inside = torch.tensor([[0, 5.0, 5, 60, 40], [1, 20, 20, 20, 40]])
    assert_close(ops.prroi_pool(flat, inside, (2, 3), 0.08), [[[[3] * 3] * 2] * 2, [[[0] * 3] * 2] * 2])
    # mmcv allows float32 only: difference quotients of a large step, of functions that are smooth between the pixels.
    regions = torch.tensor([[1, 10.3, 12.1, 50.7, 63.2]], requires_grad=True)
    weights = torch.linspace(-1, 1, 12).view(1, 2, 2, 3)
    loss = lambda x, r: (ops.prroi_pool(x, r, (2, 3), 0.08) * weights).sum()  # noqa: E731
    grad_x, grad_r = torch.autograd.grad(loss(x, regions), [x, regions])
    for leaf, grad, step, places in ((x, grad_x, 1.0, range(0, 168, 5)), (regions, grad_r, 0.05, range(1, 5))):
        for place in places:
            move = torch.zeros(leaf.numel())
            move[place] = step
            moved = [leaf.detach() + sign * move.view(leaf.shape) for sign in (1, -1)]
            up, down = (loss(m, regions) if leaf is x else loss(x, m) for m in moved)
            assert grad.flatten()[place].item() == pytest.approx(((up - down) / 2 / step).item(), abs=2e-4)
    assert grad_r[0, 0] == 0
    assert grad_r[0, 1:].abs().min() > 1e-4
    assert grad_x.abs().sum() > 1


@pytest.mark.parametrize(
    'sizes',
    [
        dict(kernel_size=3, max_displacement=1, stride=2, padding=1),
        slow(max_displacement=2, padding=0),
        slow(kernel_size=(1, 3), max_displacement=2, padding=(0, 2), dilation=(1, 2), dilation_patch=(2, 1)),
    ],
)
def test_correlation(ops, sizes):
    a, b = random(2, 3, 6, 7), random(2, 3, 6, 7, seed=1)
    output = ops.Correlation(**sizes)(a, b)
    assert_close(output, reference.correlation(a.detach().numpy(), b.detach().numpy(), **sizes))
    assert torch.autograd.gradcheck(ops.Correlation(**sizes), (double(a[:1, :2, :5, :4]), double(b[:1, :2, :5, :4])))


def test_tin_shift(ops):
    x, shift = random(2, 4, 6, 3), torch.tensor([[1, -2, 0], [9, -1, 3]], dtype=torch.int)
    output = ops.tin_shift(x, shift)
    expected = np.zeros(x.shape)
    for n, t, c in np.ndindex(2, 4, 6):
        later = t + int(shift[n, c // 2])
        if 0 <= later < 4:
            expected[n, later, c] = x.detach()[n, t, c]
    assert_close(output, expected)
    x = double(x)
    x.grad = None
    weights = torch.linspace(-1, 1, x.numel()).double().view(x.shape)
    (ops.tin_shift(x, shift) * weights).sum().backward()
    (expected,) = torch.autograd.grad((shifted(x, shift) * weights).sum(), x)
    assert torch.equal(x.grad, expected)


def shifted(x, shift):
    rows = []
    for n in range(len(x)):
        groups = []
        for g, by in enumerate(shift[n].tolist()):
            frames = x[n, :, 2 * g : 2 * g + 2]
            by = max(-4, min(4, by))
            empty = torch.zeros_like(frames[: abs(by)])
            groups.append(torch.cat([empty, frames[: 4 - by]] if by >= 0 else [frames[-by:], empty]))
        rows.append(torch.cat(groups, 1))
    return torch.stack(rows)


def test_orientations_turn_with_the_region(ops):
    """A region at 90 degrees reads orientation channels one quarter of a turn further."""
    x = torch.arange(4.0).view(1, 4, 1, 1).expand(1, 4, 9, 9).contiguous()
    for turns in range(-5, 6):
        region = torch.tensor([[0, 4, 4, 3, 3, turns * math.pi / 2 + 1e-6]])
        output = ops.riroi_align_rotated(x, region, 1, 1.0, 2, 4)
        assert_close(output.flatten(), [(o - turns) % 4 for o in range(4)], 1e-5)
