"""GroupNorm against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near
from tests.reference import channels_first
from tokennorm.norms import GroupNorm, InstanceNorm


@pytest.mark.parametrize('num_groups', [1, 3, 12])  # all channels, some, one
def test_equals_torchs(num_groups):
    norm = GroupNorm(12, eps=0.1, num_groups=num_groups).double()
    for p in norm.parameters():
        nn.init.normal_(p)
    x = (2 * torch.randn(2, 3, 5, 12) + torch.arange(12)).double().requires_grad_()
    inputs = [x, norm.weight, norm.bias]
    y = norm(x)
    expected = channels_first(lambda maps: F.group_norm(maps, num_groups, norm.weight, norm.bias, eps=0.1), x)
    grad_y = torch.randn_like(x)
    assert_near('y', y, expected, dtype=x.dtype)
    actual = torch.autograd.grad(y, inputs, grad_y)
    for name, a, e in zip(('x', 'weight', 'bias'), actual, torch.autograd.grad(expected, inputs, grad_y), strict=True):
        assert_near(f'gradient of {name}', a, e, 'backward', dtype=x.dtype)
    if num_groups == 12:
        assert_near('InstanceNorm', GroupNorm(12, num_groups=12)(x), InstanceNorm(12)(x), dtype=x.dtype)


def test_an_image_in_a_padded_batch_is_as_alone():
    norm = GroupNorm(6, num_groups=2)
    x = torch.randn(2, 4, 5, 6)
    x[1, 2:], x[1, :, 3:] = 100, 100
    y = norm(x, torch.tensor([[4, 5], [2, 3]]))
    assert_near('whole image', y[:1], norm(x[:1]))
    assert_near('padded image', y[1:, :2, :3], norm(x[1:, :2, :3]))


def test_groups_divide_the_channels():
    with pytest.raises(ValueError, match='num_groups=32 must divide num_features=48'):
        GroupNorm(48)
