"""ScaleNorm against its formula."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.norms import ScaleNorm


def test_equals_its_formula():
    norm = ScaleNorm(6).double()
    nn.init.constant_(norm.weight, 1.7)
    x = torch.randn(2, 3, 4, 6).double().requires_grad_()
    y, expected = norm(x), norm.weight * F.normalize(x, dim=-1)
    assert_near('y', y, expected, dtype=x.dtype)
    grad_y = torch.randn_like(x)
    expected = torch.autograd.grad(expected, [x, norm.weight], grad_y)
    for name, a, e in zip(('x', 'g'), torch.autograd.grad(y, [x, norm.weight], grad_y), expected, strict=True):
        assert_near(f'gradient of {name}', a, e, 'backward', dtype=x.dtype)
    assert_near('any rank', norm(x.flatten(0, 2)), y.flatten(0, 2), dtype=x.dtype)


def test_starts_with_the_root_of_the_channels_and_survives_zeros():
    norm = ScaleNorm(16, eps=1e-3)
    assert norm.weight.tolist() == [4]
    x = torch.zeros(1, 1, 2, 16, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert y.abs().max() == 0
    assert x.grad.isfinite().all()
    assert_near('eps', norm(torch.full((1, 16), 1e-5)), torch.full((1, 16), 4e-2))
