"""Derf against its formula."""

import math

import torch
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.norms import Derf


def test_equals_its_formula():
    norm = Derf(3).double()
    for p in norm.parameters():
        nn.init.normal_(p)
    x = torch.randn(2, 1, 2, 3).double()
    alpha, shift = norm.alpha.item(), norm.shift.item()
    values = [math.erf(alpha * value + shift) for value in x.flatten().tolist()]
    expected = torch.tensor(values, dtype=x.dtype).view_as(x) * norm.weight + norm.bias
    assert_near('y', norm(x), expected, dtype=x.dtype)
    assert torch.autograd.gradcheck(norm, x.requires_grad_())


def test_initial_values():
    norm = Derf(4)
    assert (norm.alpha.tolist(), norm.shift.tolist()) == ([0.5], [0.0])
    norm = Derf(4, alpha_init_value=0.25, shift_init_value=0.1)
    for p in norm.parameters():
        nn.init.normal_(p)
    norm.reset_parameters()
    torch.testing.assert_close(norm.alpha, torch.tensor([0.25]))
    torch.testing.assert_close(norm.shift, torch.tensor([0.1]))
    assert sorted(norm.state_dict()) == ['alpha', 'bias', 'shift', 'weight']
