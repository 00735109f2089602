"""PowerNorm against a transcription of the paper's algorithms, step by step, and its running statistics."""

import pytest
import torch
from torch import nn

from tests.helpers.compare import assert_near
from tests.reference import power_norm_step
from tokennorm.norms import PowerNorm


@pytest.mark.parametrize('groups', [1, 3])
def test_equals_the_reference_during_and_after_warmup(groups):
    norm = PowerNorm(6, eps=0.01, warmup_iters=3, num_groups=groups).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    state = dict(phi=torch.ones(6).double(), nu=torch.zeros(6).double(), t=0)
    for step in range(6):
        x = (2 * torch.randn(2, 3, 4, 6) + torch.arange(6)).double().requires_grad_()
        grad_y = torch.randn_like(x) + 0.5 * x.detach()
        y = norm(x)
        grads = torch.autograd.grad(y, [x, norm.weight, norm.bias], grad_y)
        tokens = x.detach().flatten(0, 2)
        expected = power_norm_step(
            tokens, grad_y.flatten(0, 2), state, norm.weight.detach(), norm.bias.detach(), 0.01, 3, groups
        )
        actual = (y.flatten(0, 2), grads[0].flatten(0, 2), *grads[1:], norm.running_phi, norm.running_nu)
        names = ('y', 'gradient of x', 'gradient of weight', 'gradient of bias', 'phi', 'nu')
        for name, a, e in zip(names, actual, (*expected, state['phi'], state['nu']), strict=True):
            assert_near(f'step {step}: {name}', a, e, 'backward', dtype=x.dtype)
    assert norm.iters == 6


def test_eval_mode_uses_the_running_quadratic_mean_unchanged():
    norm = PowerNorm(6, eps=0.01)
    for _ in range(3):
        norm(torch.randn(2, 3, 4, 6))
    state = {name: value.clone() for name, value in norm.state_dict().items()}
    x = torch.randn(2, 3, 4, 6)
    scaled = x / (x.square().mean(-1, keepdim=True) + 0.01).sqrt()
    assert_near('y', norm.eval()(x), scaled / (norm.running_phi + 0.01).sqrt())
    for name, value in norm.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_padding_is_left_out_of_both_statistics():
    norm, alone = PowerNorm(6).double(), PowerNorm(6).double()
    x = torch.randn(2, 4, 5, 6).double().requires_grad_()
    valid = torch.tensor([[4, 5], [2, 3]])
    tokens = torch.cat([x[0].flatten(0, 1), x[1, :2, :3].flatten(0, 1)]).detach().requires_grad_()
    y, expected = norm(x, valid), alone(tokens[None, None])[0, 0]
    assert_near('whole image', y[0].flatten(0, 1), expected[:20], dtype=x.dtype)
    assert_near('padded image', y[1, :2, :3].flatten(0, 1), expected[20:], dtype=x.dtype)
    y.square().sum().backward()
    expected.square().sum().backward()
    assert_near('phi', norm.running_phi, alone.running_phi, dtype=x.dtype)
    assert_near('nu', norm.running_nu, alone.running_nu, dtype=x.dtype)
    assert norm.running_nu.abs().min() > 0


def test_a_gradient_that_overflows_is_forgotten():
    """Loss scaling begins with such steps and leaves them out: those behind them must not suffer."""
    norm, without = PowerNorm(6), PowerNorm(6)
    x = torch.randn(2, 3, 4, 6, requires_grad=True)
    overflow = torch.ones_like(x)
    overflow[0, 0, 0, 0] = torch.inf
    norm(x).backward(overflow)
    assert norm.running_nu[1:].abs().min() > 0
    norm.running_nu[1:] = 0
    norm(x), without(x), without(x)
    grads = [torch.autograd.grad(n(x), x, torch.ones_like(x))[0] for n in (norm, without)]
    assert grads[0].isfinite().all()
    assert_near('gradient of x', *grads)


def test_groups_must_divide_the_channels():
    with pytest.raises(ValueError, match='PowerNorm: num_groups=4 must divide num_features=6'):
        PowerNorm(6, num_groups=4)
