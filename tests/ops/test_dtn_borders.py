"""DTN refuses arguments that do not fit, and its limits: constant channels, NaN in the padding, lambda near 0 or 1."""

import pytest
import torch
from torch.testing import assert_close

from tokennorm.norms import DTN
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn

B, H, W, C, N = 4, 5, 6, 12, 3


def arguments(dtype=torch.float32, **replaced):
    """Arguments of `dtn` for 3 heads of 4 channels."""
    made = dict(
        x=torch.randn(B, H, W, C, dtype=dtype),
        weight=torch.rand(C, dtype=dtype) + 0.5,
        bias=torch.randn(C, dtype=dtype),
        mean_logit=torch.randn(N, dtype=dtype),
        var_logit=torch.randn(N, dtype=dtype),
        position=torch.randn(N, 3, dtype=dtype) - torch.tensor([1.0, 0, 0], dtype=dtype),
    )
    return list((made | replaced).values())


@pytest.mark.parametrize(
    'replaced',
    [
        dict(weight=torch.ones(4)),
        dict(weight=torch.ones(0)),
        dict(bias=torch.ones(1)),
        dict(mean_logit=torch.zeros(1)),
        dict(var_logit=torch.zeros(1)),
        dict(position=torch.zeros(1, 3)),
        dict(position=torch.zeros(N, 2)),
        dict(x=torch.randn(B, H * W, C)),
        dict(mean_logit=torch.zeros(0), var_logit=torch.zeros(0), position=torch.zeros(0, 3)),
        dict(mean_logit=torch.zeros(5), var_logit=torch.zeros(5), position=torch.zeros(5, 3)),
        dict(mean_logit=torch.zeros(24), var_logit=torch.zeros(24), position=torch.zeros(24, 3)),
        dict(x=torch.ones(B, H, W, C, dtype=torch.int64)),
        dict(x=torch.ones(B, H, W, C).to(torch.float8_e4m3fn)),
        dict(x=torch.ones(B, H, W, C).to_sparse()),
        dict(weight=torch.ones(C, dtype=torch.int64)),
        dict(weight=torch.ones(C, device='meta')),
        dict(position=torch.zeros(N, 3, dtype=torch.complex64)),
    ],
    ids=lambda replaced: ', '.join(f'{name} {tuple(t.shape)} {t.dtype}' for name, t in replaced.items()),
)
def test_arguments_that_do_not_fit(replaced):
    with pytest.raises(ValueError, match=r'DTN takes x \(B, H, W, C\)'):
        dtn(*arguments(**replaced))


@pytest.mark.parametrize(
    'valid',
    [
        torch.ones(1, 2, dtype=torch.int64),
        torch.ones(B, 2),
        torch.ones(B, 2, dtype=torch.bool),
        [[1, 1]] * B,
    ],
    ids=str,
)
def test_valid_that_does_not_fit(valid):
    with pytest.raises(ValueError, match=r'DTN: valid .* must be an int32 or int64 tensor \(B, 2\)'):
        dtn(*arguments(), valid=valid)


def test_valid_on_another_device():
    with pytest.raises(ValueError, match='all on the device of x'):
        dtn(*arguments(), valid=torch.ones(B, 2, dtype=torch.int64, device='meta'))


@pytest.mark.parametrize('option', [dict(pool=0), dict(pool=-1), dict(pool=1.5), dict(form='publishd')])
def test_options_that_do_not_exist(option):
    with pytest.raises(ValueError, match=str(*option.values())):
        dtn(*arguments(), **option)


def test_gradients_without_memory():
    """torch gives a zero gradient that has no storage: the kernel must not read it."""
    x = torch.randn(B, H, W, C, requires_grad=True)
    (grad,) = torch.autograd.grad(dtn(*arguments(x=x)), x, torch._efficientzerotensor((B, H, W, C)))
    assert torch.equal(grad, torch.zeros(B, H, W, C))


@pytest.mark.compiler
def test_long_sequence():
    """Products of columns and tiles exceed 32 bits."""
    torch.manual_seed(0)
    x = torch.randn(1, 371_000, 8)
    norm = DTN(8, 2, grid='sequence')
    assert_close(norm(x)[:, :1000], norm(x[:, :2000])[:, :1000], atol=1e-4, rtol=0)  # the shifts of the channels differ


def test_pool_larger_than_any_grid():
    args = arguments()
    assert torch.equal(dtn(*args, pool=2**31), dtn(*args, pool=H + W))


def test_overflow_of_squares_is_not_hidden():
    x = torch.randn(1, 4, 4, 8)
    x[0, 1, 1] = 3e38
    assert not DTN(8, 2)(x)[0, 1, 2].isfinite().all()


@pytest.mark.parametrize('function', [dtn, eager_dtn])
def test_nan_in_padding_stays_out_of_gradients(function):
    valid = torch.tensor([[3, 4]] * B)
    args = [t.requires_grad_() for t in arguments()]
    padded = args[0].detach().clone()
    padded[:, 3:] = torch.nan
    args[0] = padded.requires_grad_()
    function(*args, valid=valid)[:, :3, :4].square().sum().backward()
    clean = [t.detach().clone().requires_grad_() for t in args]
    clean[0] = padded.detach()[:, :3, :4].clone().requires_grad_()
    function(*clean).square().sum().backward()
    assert_close(args[0].grad[:, :3, :4], clean[0].grad, atol=1e-4, rtol=1e-4)
    for one, other in zip(args[2:], clean[2:], strict=True):  # gamma's is NaN, as in LayerNorm
        assert_close(one.grad, other.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize('logit', [-20.0, 20.0])
@pytest.mark.parametrize('function', [dtn, eager_dtn])
def test_lambda_close_to_zero_or_one_keeps_gradients(function, logit):
    """The float32 sigmoid of 20 is 1, where 1 - lambda is 2e-9: neither it nor the slope may come from a difference."""
    logits = torch.full((N,), logit, dtype=torch.float64)
    exact = [t.requires_grad_() for t in arguments(torch.float64, mean_logit=logits, var_logit=logits.clone())]
    grad_y = torch.randn(B, H, W, C, dtype=torch.float64)
    eager_dtn(*exact).mul(grad_y).sum().backward()
    single = [t.detach().float().requires_grad_() for t in exact]
    function(*single).mul(grad_y.float()).sum().backward()
    for one, other in zip(single[3:5], exact[3:5], strict=True):
        assert_close(one.grad / other.grad.float(), torch.ones(N), atol=0.02, rtol=0)
