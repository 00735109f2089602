"""InstanceNorm against torch's own."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near
from tests.reference import channels_first
from tokennorm.norms import InstanceNorm


def test_equals_torchs():
    norm = InstanceNorm(6, eps=0.1).double()
    for p in norm.parameters():
        nn.init.normal_(p)
    x = (2 * torch.randn(2, 3, 5, 6) + 1).double().requires_grad_()
    inputs = [x, norm.weight, norm.bias]
    for y in (norm(x), norm.eval()(x)):
        expected = channels_first(lambda maps: F.instance_norm(maps, weight=norm.weight, bias=norm.bias, eps=0.1), x)
        grad_y = torch.randn_like(x)
        assert_near('y', y, expected, dtype=x.dtype)
        actual = torch.autograd.grad(y, inputs, grad_y)
        for name, a, e in zip(
            ('x', 'weight', 'bias'), actual, torch.autograd.grad(expected, inputs, grad_y), strict=True
        ):
            assert_near(f'gradient of {name}', a, e, 'backward', dtype=x.dtype)


def test_one_token_gives_the_bias():
    norm = InstanceNorm(4)
    nn.init.normal_(norm.bias)
    assert torch.equal(norm(torch.randn(2, 1, 1, 4)), norm.bias.expand(2, 1, 1, 4))


def test_an_image_in_a_padded_batch_is_as_alone():
    norm = InstanceNorm(6)
    x = torch.randn(2, 4, 5, 6)
    x[1, 2:], x[1, :, 3:] = 100, 100
    y = norm(x, torch.tensor([[4, 5], [2, 3]]))
    assert_near('whole image', y[:1], norm(x[:1]))
    assert_near('padded image', y[1:, :2, :3], norm(x[1:, :2, :3]))
    assert y.isfinite().all()
