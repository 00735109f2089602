"""DynamicTanh against its formula."""

import torch
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.norms import DynamicTanh


def test_equals_its_formula():
    norm = DynamicTanh(6).double()
    for p in norm.parameters():
        nn.init.normal_(p)
    x = torch.randn(2, 3, 4, 6).double().requires_grad_()
    names, parameters = zip(*norm.named_parameters(), strict=True)
    exp = (2 * norm.alpha * x).exp()
    y, expected = norm(x), norm.weight * (exp - 1) / (exp + 1) + norm.bias
    assert_near('y', y, expected, dtype=x.dtype)
    grad_y = torch.randn_like(x)
    expected = torch.autograd.grad(expected, [x, *parameters], grad_y)
    for name, a, e in zip(('x', *names), torch.autograd.grad(y, [x, *parameters], grad_y), expected, strict=True):
        assert_near(f'gradient of {name}', a, e, 'backward', dtype=x.dtype)


def test_alpha_starts_where_it_is_told():
    assert DynamicTanh(4).alpha.tolist() == [0.5]
    norm = DynamicTanh(4, alpha_init_value=0.25)
    nn.init.normal_(norm.alpha)
    norm.reset_parameters()
    assert norm.alpha.tolist() == [0.25]
    assert sorted(norm.state_dict()) == ['alpha', 'bias', 'weight']
