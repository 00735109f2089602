"""RMSNorm against torch's own."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.norms import RMSNorm


def test_equals_torchs():
    norm = RMSNorm(6, eps=0.1).double()
    nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 4, 6).double().requires_grad_()
    y, expected = norm(x), F.rms_norm(x, (6,), norm.weight, eps=0.1)
    assert_near('y', y, expected, dtype=x.dtype)
    grad_y = torch.randn_like(x)
    expected = torch.autograd.grad(expected, [x, norm.weight], grad_y)
    for name, a, e in zip(('x', 'weight'), torch.autograd.grad(y, [x, norm.weight], grad_y), expected, strict=True):
        assert_near(f'gradient of {name}', a, e, 'backward', dtype=x.dtype)
    assert list(norm.state_dict()) == ['weight']
    assert torch.equal(RMSNorm(6).weight, torch.ones(6))
