"""DTN in place against the dense float64 transcription; where there is a CUDA device (`-m gpu`), on it."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.fuzz_dtn import NAMES, arguments, assert_equals_dense, forward_and_gradients
from tests.helpers.compare import assert_near
from tests.ops.test_dtn import CASES
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_in_place import Call, in_place_dtn

CUDA = torch.cuda.is_available()
DEVICE = 'cuda' if CUDA else 'cpu'
pytestmark = [pytest.mark.gpu] if CUDA else []


def on_device(*args, **kwargs):
    """`in_place_dtn` on the device, its output on the CPU."""
    kwargs = {key: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}
    return in_place_dtn(*(t if t is None else t.to(DEVICE) for t in args), **kwargs).cpu()


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_equals_the_dense_transcription(batch, height, width, channels, heads, pool, dtype):
    valid = torch.randint(1, 14, (batch, 2)).clamp(max=torch.tensor([height, width]))
    for sides in (None, valid):
        args = arguments(batch, height, width, channels, heads)
        assert_equals_dense(args, dtype, pool=pool, valid=sides, function=on_device)


@pytest.mark.parametrize('a1', [-100, -0.02, 0, 0.02])
def test_every_sign_and_size_of_a1(a1):
    args = arguments(1, 9, 14, 8, 2, a1)
    assert_equals_dense(args, function=on_device)
    args[3] = None  # no mixed mean
    assert_equals_dense(args, function=on_device)


def test_a_common_offset_costs_no_more_digits_than_in_the_eager_form():
    args = arguments(2, 12, 10, 8, 2)
    args[0] = (args[0] + 1e3).float().double()
    grad_y = torch.randn(args[0].shape)
    expected = forward_and_gradients(eager_dtn, args, torch.float64, grad_y)
    ours, eager = (
        [((a - e).abs().max() / e.abs().max()).item() for a, e in zip(results, expected, strict=True)]
        for results in (forward_and_gradients(f, args, torch.float32, grad_y) for f in (on_device, eager_dtn))
    )
    for name, own, other in zip(NAMES, ours, eager, strict=True):
        assert own < 4 * other + 1e-5, f'{name}: {own:.1e} where the eager form has {other:.1e}'


@pytest.mark.parametrize('pool', [1, 2])
def test_second_derivatives_are_those_of_the_eager_form(pool):
    args = [t.to(DEVICE).requires_grad_() for t in arguments(2, 2, 3, 4, 2)]
    valid = torch.tensor([[2, 2], [1, 3]], device=DEVICE)
    results = []
    for function in (in_place_dtn, eager_dtn):
        first = torch.autograd.grad(function(*args, pool=pool, valid=valid).square().sum(), args, create_graph=True)
        results.append([*first, *torch.autograd.grad(sum(g.square().sum() for g in first), args)])
    for index, (a, e) in enumerate(zip(*results, strict=True)):
        assert_near(f'{index // 6 + 1}. derivative of {NAMES[1 + index % 6]}', a, e, 'backward', torch.float64)


@pytest.mark.parametrize('pool', [1, 2])
def test_padding_may_be_nan(pool):
    x, *parameters = (t.float().to(DEVICE) for t in arguments(2, 4, 5, 4, 1, a1=-0.3))
    valid = torch.tensor([[2, 4], [3, 1]], device=DEVICE)
    inside = torch.zeros_like(x, dtype=torch.bool)
    inside[0, :2, :4], inside[1, :3, :1] = True, True
    results = []
    for padding in (0.0, float('nan')):
        given = x.where(inside, padding).requires_grad_()
        y = in_place_dtn(given, *parameters, pool=pool, valid=valid)
        (grad,) = torch.autograd.grad(y[inside].square().sum(), given)
        results.append(torch.cat([y.detach()[inside], grad[inside]]))
    assert torch.equal(*results)


@pytest.mark.parametrize('pool', [1, 4])
def test_saves_the_tokens_and_two_numbers_for_each(pool):
    x, *parameters = (t.float().to(DEVICE).requires_grad_() for t in arguments(2, 16, 16, 64, 2))
    saved = {}

    def pack(t):
        saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        in_place_dtn(x, *parameters, pool=pool)
    assert sum(saved.values()) < 1.05 * x.nbytes


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_dtypes_and_devices_of_a_gpu_that_does_not_exist(dtype):
    """Forward and backward pass of fake tensors, which have a shape, a dtype and a device."""
    with FakeTensorMode(), torch.no_grad():
        x, *parameters = (t.to('cuda', torch.float32) for t in arguments(2, 5, 7, 8, 2))
        x = x.to(dtype)
        for pool, valid in ((1, None), (2, torch.ones(2, 2, dtype=torch.int64, device='cuda'))):
            call = Call(x, parameters, 1e-5, pool, valid)
            y = call.normalized(dtype)
            again = Call(x, parameters, 1e-5, pool, valid, call.own_mean, call.own_total)
            for a, e in zip((y, *again.gradients(torch.ones_like(y))), (x, x, *parameters), strict=True):
                assert (a.shape, a.dtype, a.device) == (e.shape, e.dtype, e.device)
