"""DTN's CPU kernel inside torch: autograd, autocast, transforms."""

from functools import partial

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.compare import assert_near
from tokennorm.norms import DTN
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn

pytestmark = pytest.mark.compiler

NAMES = ('x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')
VALID = torch.tensor([[5, 7], [3, 2]])


def arguments(dtype=torch.float32):
    """Tokens (2, 5, 7, 12) and parameters of 3 heads, all wanting gradients."""
    position = 0.3 * torch.randn(3, 3) - torch.tensor([1.0, 0, 0])
    args = torch.randn(2, 5, 7, 12), torch.rand(12) + 0.5, torch.randn(12), torch.randn(3), torch.randn(3), position
    return [t.to(dtype).requires_grad_() for t in args]


def gradients(function, args, **kwargs):
    y = function(*args, **kwargs)
    return y, *torch.autograd.grad(y, args, torch.ones_like(y).cumsum(1))


def assert_equal(actual, expected):
    for name, a, e in zip(('y', *NAMES), actual, expected, strict=True):
        assert torch.equal(a, e), name


def test_the_kernel_runs(kernel_calls):
    """Otherwise the other tests would test the eager form."""
    gradients(dtn, arguments())
    assert kernel_calls == ['dtn_forward', 'dtn_backward']


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_forward_and_backward_inside_autocast(dtype):
    args = arguments()
    args[0] = args[0].detach().to(dtype).requires_grad_()
    expected = gradients(dtn, args, valid=VALID)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        actual = gradients(dtn, args, valid=VALID)
    assert [a.dtype for a in actual] == [e.dtype for e in expected]
    assert_equal(actual, expected)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_gradients_of_a_padded_batch_keep_their_digits(dtype):
    """Sums over the padding's tokens are float32 too: against the eager form in float64."""
    args = arguments()
    args[0] = torch.randn(2, 40, 40, 12).to(dtype).requires_grad_()
    valid = torch.tensor([[20, 17], [3, 40]])
    actual = gradients(dtn, args, valid=valid)
    expected = gradients(dtn, [t.detach().double().requires_grad_() for t in args], valid=valid)
    for name, a, e in zip(NAMES[1:], actual[2:], expected[2:], strict=True):
        assert_near(name, a, e, 'backward')


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_in_other_dtypes(dtype):
    args = arguments()
    args[1:] = [t.detach().to(dtype).requires_grad_() for t in args[1:]]
    actual = gradients(dtn, args)
    expected = gradients(eager_dtn, [t.detach().double().requires_grad_() for t in args])
    for name, p, a, e in zip(NAMES, args, actual[1:], expected[1:], strict=True):
        assert a.dtype == p.dtype, name
        assert (a - e).abs().max() <= 5e-3 * e.abs().max(), name


def test_the_default_dtype_changes_nothing():
    args = arguments()
    expected = gradients(dtn, args)
    torch.set_default_dtype(torch.float64)
    try:
        actual = gradients(dtn, args)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_equal(actual, expected)


@pytest.mark.parametrize('use_reentrant', [False, True])
def test_activation_checkpointing(use_reentrant, kernel_calls):
    args = arguments()
    expected = gradients(partial(dtn, valid=VALID), args)
    y = checkpoint(partial(dtn, valid=VALID), *args, use_reentrant=use_reentrant)
    y.backward(torch.ones_like(y).cumsum(1))
    assert_equal([y, *(p.grad for p in args)], expected)
    assert sorted(kernel_calls) == 2 * ['dtn_backward'] + 3 * ['dtn_forward']


@pytest.mark.parametrize('index', range(6))
def test_in_place_change_before_backward_raises(index):
    args = arguments()
    changed = args[index] = args[index].detach().clone().requires_grad_() * 1
    y = dtn(*args)
    changed.add_(1)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        y.sum().backward()


def test_second_derivatives_are_refused():
    y = dtn(*(args := arguments()))
    with pytest.raises(RuntimeError, match='differentiable once on a CPU'):
        torch.autograd.grad(y, args, y, create_graph=True)


@pytest.mark.parametrize('autocast', [False, True])
def test_batched_gradients(autocast):
    args = arguments()
    y = dtn(*args, pool=2, valid=VALID)
    grads = torch.randn(3, *y.shape)
    with torch.autocast('cpu', dtype=torch.bfloat16, enabled=autocast):
        actual = torch.autograd.grad(y, args, grads, is_grads_batched=True, retain_graph=True)
    for i, grad in enumerate(grads):
        for name, a, e in zip(NAMES, actual, torch.autograd.grad(y, args, grad, retain_graph=True), strict=True):
            assert_near(name, a[i], e, 'backward')


def test_negated_views():
    """Their memory holds the numbers with the other sign."""
    x, *parameters = (t.detach() for t in arguments())
    negated = torch._neg_view(-x)  # contiguous, unlike .conj().imag
    assert negated.is_neg()
    assert torch.equal(negated, x)
    assert_near('y', dtn(negated, *parameters), dtn(x, *parameters))


def test_counters_of_operations_see_the_matrix_products():
    with FlopCounterMode(display=False) as counter:
        DTN(12, 3)(torch.randn(1, 5, 7, 12))
    assert counter.get_total_flops() == 2 * (5 * 7 * 24) * (5 + 7)


@pytest.mark.parametrize('parameters', [False, True])
def test_torch_func(parameters, kernel_calls):
    """vmap, grad and jvp over tokens and over parameters take the eager form."""
    x, *rest = (t.detach() for t in arguments())
    position = rest.pop()

    def loss(x, position):
        return dtn(x, *rest, position).square().sum()

    at = int(parameters)
    given = torch.func.grad(loss, argnums=at)(x, position)
    leaf = (x, position)[at].clone().requires_grad_()
    inputs = (x, leaf) if parameters else (leaf, position)
    (expected,) = torch.autograd.grad(loss(*inputs), [leaf])
    assert_near('grad', given, expected, 'backward')

    direction = torch.randn_like(leaf)
    function = partial(loss, x) if parameters else partial(loss, position=position)
    _, change = torch.func.jvp(function, (leaf.detach(),), (direction,))
    assert_near('jvp', change, (expected * direction).sum(), 'backward')

    with forward_ad.dual_level():
        change = forward_ad.unpack_dual(function(forward_ad.make_dual(leaf.detach(), direction))).tangent
    assert_near('forward AD', change, (expected * direction).sum(), 'backward')

    stack = torch.stack([leaf.detach(), leaf.detach() + 0.1])
    mapped = torch.func.vmap(function)(stack)
    assert_near('vmap', mapped, torch.stack([function(t) for t in stack]))
    assert kernel_calls.count('dtn_backward') == 1


def test_meta_and_fake_tensors_and_tracing():
    norm = DTN(12, 3, pool=2)
    with torch.device('meta'):
        y = DTN(12, 3, pool=2)(torch.randn(2, 5, 7, 12), torch.zeros(2, 2, dtype=torch.long))
    assert (y.device.type, y.shape) == ('meta', (2, 5, 7, 12))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert norm(mode.from_tensor(torch.randn(2, 5, 7, 12))).shape == (2, 5, 7, 12)
    x = torch.randn(2, 5, 7, 12)
    traced = torch.jit.trace(norm, (torch.randn(2, 5, 7, 12),))
    assert_near('y', traced(x), norm(x))
