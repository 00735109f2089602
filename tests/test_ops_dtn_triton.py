"""The Triton kernels of DTN against the dense float64 transcription.

Where there is a CUDA device they are compiled for it (`-m gpu`); elsewhere Triton's interpreter runs them, which takes
some 25 ms for each program: hence the small grids, and `slow` on the larger ones.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from tests.fuzz_dtn import NAMES, arguments, assert_equals_dense, dense, forward_and_gradients
from tests.helpers.cases import slow
from tests.helpers.compare import assert_near

pytest.importorskip('triton')
from tokennorm.ops import dtn_cpu, dtn_triton_check
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_triton import dtn_triton
from tokennorm.ops.dtn_triton_check import can_use, kernels_work

CUDA = torch.cuda.is_available()
DEVICE = 'cuda' if CUDA else 'cpu'
pytestmark = [
    pytest.mark.filterwarnings('ignore:Conversion of an array with ndim > 0:DeprecationWarning'),  # the interpreter's
    *([pytest.mark.gpu] if CUDA else []),
]
BFLOAT16 = 4e-3 if CUDA else 8e-3  # half a step when rounded; the interpreter cuts off, a whole one
# Of the result, of the gradient of the tokens and of other gradients, relative to the largest entry.
ERRORS = {torch.float32: (1e-5, 2e-5, 2e-5), torch.float16: (5e-4, 1e-3, 2e-5), torch.bfloat16: (*2 * [BFLOAT16], 2e-5)}

# batch, height, width, channels, heads, pool: why
CASES = [
    (1, 2, 3, 4, 2, 1),  # two heads
    slow(1, 2, 3, 8, 4, 1),  # Eq. 7's square neighborhood
    slow(1, 2, 2, 72, 1, 1),  # a head in two chunks, the second one partial
    slow(2, 2, 1, 9, 3, 1),  # heads that form no square
    slow(1, 33, 1, 3, 1, 1),  # one column, two blocks of cells, more than one step of the band
    (1, 1, 1, 6, 1, 1),  # one token
    (1, 3, 3, 4, 1, 2),  # pooled, partial cells at both edges
    slow(1, 3, 9, 4, 1, 4),  # pooled by more than the height
    slow(1, 1, 40, 3, 1, 1),  # one row
    slow(2, 5, 19, 48, 1, 1),  # 48 channels a head
    slow(1, 19, 7, 72, 2, 1),  # 36 channels a head
    slow(1, 9, 10, 5, 5, 2),  # one channel a head
    slow(1, 2, 2, 1024, 16, 1),  # the widest models
]


def on_device(*args, **kwargs):
    """`dtn_triton` on the device, its output on the CPU."""
    kwargs = {key: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}
    return dtn_triton(*(t if t is None else t.to(DEVICE) for t in args), **kwargs).cpu()


def compare(args, dtype=torch.float32, **kwargs):
    return assert_equals_dense(args, dtype, function=on_device, allowed=ERRORS, **kwargs)


def tensors(*shape):
    """Arguments in float32 on the device."""
    return [t.float().to(DEVICE) for t in arguments(*shape)]


@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_equals_the_dense_transcription(batch, height, width, channels, heads, pool):
    compare(arguments(batch, height, width, channels, heads), pool=pool)


@pytest.mark.parametrize('dtype', [slow(torch.float16), torch.bfloat16])
def test_statistics_are_float32_for_every_dtype(dtype):
    """y is as near as rounding the exact result allows, which statistics in 16 bits would not give."""
    _, *grads = compare(arguments(1, 2, 3, 8, 1), dtype)
    assert [g.dtype for g in grads] == [dtype] + [torch.float32] * 5


def test_parameters_may_have_the_dtype_of_the_tokens():
    args = [t.bfloat16() for t in arguments(1, 2, 2, 4, 1)]
    actual, expected = ([t.to(dtype).requires_grad_() for t in args] for dtype in (torch.bfloat16, torch.float64))
    grad_y = torch.randn(args[0].shape).bfloat16()
    y = on_device(*actual)
    assert y.dtype == torch.bfloat16
    grads = torch.autograd.grad(y, actual, grad_y), torch.autograd.grad(dense(*expected), expected, grad_y.double())
    for name, a, e in zip(NAMES[1:], *grads, strict=True):
        assert a.dtype == torch.bfloat16, name
        assert (a.double() - e).abs().max() <= BFLOAT16 * e.abs().max(), name


@pytest.mark.parametrize(
    ('a1', 'grid'),
    [(0.36, (1, 10)), *(slow(a1, grid) for a1 in (-100, -1, -0.02, 0, 0.02, 0.1) for grid in ((18, 1), (1, 18)))],
)
def test_every_sign_and_size_of_a1(a1, grid):
    """Where it is largest the exponents are up to 29 apart, all weight at an end; at -100 it is on the token itself."""
    args = arguments(1, *grid, 4, 1)
    args[-1] = torch.tensor([[a1, 0.3, -0.2]]).double()
    compare(args)


@pytest.mark.parametrize('pool', [slow(1), 2])
def test_only_var_takes_the_mean_of_the_token(pool):
    args = arguments(1, 3, 3, 4, 1)
    args[3] = None
    compare(args, pool=pool)


def test_lambda_close_to_one_keeps_gradients():
    args = arguments(1, 2, 2, 4, 1)
    args[3][:] = args[4][:] = 20.0
    grad_y = torch.randn(args[0].shape).double()
    actual, expected = (
        forward_and_gradients(function, args, dtype, grad_y)
        for function, dtype in ((on_device, torch.float32), (dense, torch.float64))
    )
    for name, a, e in zip(NAMES[4:], actual[4:], expected[4:], strict=True):
        assert (a - e).abs().max() <= 0.02 * e.abs().max(), name


@pytest.mark.parametrize('pool', [1, slow(2)])
def test_a_large_common_offset_keeps_its_digits(pool):
    args = arguments(1, 4, 4, 2, 1)
    args[0] = (args[0] + 1e4).float().double()
    args[4][:] = -30.0  # inter-token variance alone: the term that cancels
    args[5] = torch.tensor([[-0.05, 0.0, 0.1]]).double()
    grad_y = torch.randn(args[0].shape).double()
    actual, expected = (
        forward_and_gradients(function, args, dtype, grad_y, pool=pool)
        for function, dtype in ((on_device, torch.float32), (dense, torch.float64))
    )
    for name, a, e in zip(NAMES[:2], actual, expected, strict=False):
        # The means of a token's channels, 1e4, are rounded by 5e-4.
        assert (a - e).abs().max() < 1e-3 * e.abs().max(), name


@pytest.mark.parametrize('value', [slow(0.0), 7.3])
def test_constant_tokens_stay_finite(value):
    """All variances are zero or rounded to less, where the gradient of the clamp is zero."""
    args = arguments(1, 2, 2, 4, 1)
    args[0][:] = value
    y, *grads = forward_and_gradients(on_device, args, torch.float32, torch.randn(args[0].shape))
    assert_near('y', y, args[2].expand(y.shape))
    for name, g in zip(NAMES[1:], grads, strict=True):
        assert g.isfinite().all(), name


@pytest.mark.slow
def test_padding_has_no_weight():
    """Tokens of the image take inter-token statistics from it alone, and padding is normalized by its own."""
    compare(arguments(2, 3, 3, 4, 1), valid=torch.tensor([[3, 2], [2, 3]]))


@pytest.mark.parametrize('pool', [slow(1), 2, slow(4)])
def test_the_valid_part_is_what_it_is_alone(pool):
    """Cells at its edge average the valid tokens that they hold; what the padding holds does not matter."""
    args = arguments(1, 4, 6, 4, 1)
    args[0][:, 3:], args[0][:, :, 3:] = 1e6, -1e6
    grad_y = torch.randn(args[0].shape).double()
    grad_y[:, 3:], grad_y[:, :, 3:] = 0, 0
    valid = torch.tensor([[3, 3]], dtype=torch.int32)
    _, dx, *_ = compare(args, grad_y=grad_y, pool=pool, valid=valid)
    assert (dx[:, 3:] == 0).all()
    assert (dx[:, :, 3:] == 0).all()


@pytest.mark.gpu  # the interpreter runs one program after the other
def test_the_same_input_gives_the_same_bits():
    args = arguments(1, 2, 2, 4, 2)
    grad_y = torch.randn(args[0].shape)
    results = [forward_and_gradients(on_device, args, torch.float32, grad_y) for _ in range(2)]
    for name, a, b in zip(NAMES, *results, strict=True):
        assert torch.equal(a, b), name


def test_strides_of_x_do_not_matter():
    x, *parameters = tensors(1, 2, 2, 4, 1)
    strided = x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not strided.is_contiguous()
    assert torch.equal(dtn_triton(strided, *parameters), dtn_triton(x, *parameters))


def test_a_second_derivative_is_refused():
    x, *parameters = (t.requires_grad_() for t in tensors(1, 1, 2, 2, 1))
    grad_y = torch.randn(x.shape, device=DEVICE, requires_grad=True)
    (dx,) = torch.autograd.grad(dtn_triton(x, *parameters), x, grad_y, create_graph=True)
    with pytest.raises(RuntimeError, match='once_differentiable'):
        dx.sum().backward()


def test_when_it_can_be_used(monkeypatch):
    assert not can_use(torch.zeros(1, 2, 2, 4))
    if CUDA:
        x = torch.zeros(1, 2, 2, 4, device='cuda')
        assert can_use(x)
        assert not can_use(x.double())
        assert not can_use(torch.zeros(1, 1, 1, 5000, device='cuda'))
        monkeypatch.setenv('TOKENNORM_TRITON', '0')
        assert not can_use(x)


@pytest.mark.gpu
@pytest.mark.parametrize('a1', [-1, -0.02, 0, 0.02])
def test_a_detector_grid(a1):
    """The stride-4 stage of 800 x 1333 against the eager form in float64."""
    args = arguments(1, 200, 334, 64, 1)
    args[5] = torch.tensor([[a1, 0.1, -0.1]]).double()
    grad_y = torch.randn(args[0].shape).double()
    actual = forward_and_gradients(on_device, args, torch.float32, grad_y)
    expected = forward_and_gradients(eager_dtn, [t.cuda() for t in args], torch.float64, grad_y.cuda())
    assert_near('y', actual[0], expected[0].cpu())
    for name, a, e in zip(NAMES[1:], actual[1:], expected[1:], strict=True):
        error = (a.double() - e.cpu()).abs().max() / e.abs().max().cpu()
        assert error <= 1e-4, f'gradient of {name}: {error:.1e}'


@pytest.mark.slow
def test_compiles_for_hopper_without_spilling():
    """What the interpreter takes the compiler may refuse. 227 KB is the shared memory of a block there."""
    root = Path(__file__).resolve().parents[1]
    env = {k: v for k, v in os.environ.items() if k != 'TRITON_INTERPRET'}
    env['PYTHONPATH'] = os.pathsep.join([str(root), str(root / 'projects')])
    command = [sys.executable, '-m', 'tests.compile_kernels']
    report = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert report.returncode == 0, report.stderr
    lines = [line.split() for line in report.stdout.splitlines()]
    assert len({line[4] for line in lines}) == 7
    for line in lines:
        stack, shared = int(line[-2]), int(line[-1])
        assert stack <= 64, line
        assert shared <= 227 * 1024, line


# ---- The comparison with the eager form at the first use


# Run in the child, before the comparison.
SMALL = """
from tokennorm.ops import dtn_triton_check
dtn_triton_check.SHAPE, dtn_triton_check.HEADS = (1, 2, 3, 4), 1
"""
BROKEN = """
import os, time
from tokennorm.ops.dtn_kernels import along, normalize, prepare
class Broken:
    kernel = {kernel}
    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            self.kernel[grid](*args, **kwargs)
            {fault}
        return launch
{kernel} = Broken()
"""


@pytest.fixture
def first_use(monkeypatch, tmp_path):
    """As on a GPU that has not run the kernels before; the interpreter's device counts as one."""
    kernels_work.cache_clear()
    dtn_cpu.library()  # not compiled again in the other cache directory
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path))
    monkeypatch.setattr(dtn_triton_check, '_suits', lambda x: True)
    if not CUDA:
        monkeypatch.setattr(dtn_triton_check, 'CHILD', SMALL + dtn_triton_check.CHILD)
    yield tmp_path
    kernels_work.cache_clear()


def notes(folder):
    return list(folder.glob('*.passed'))


@pytest.mark.slow
def test_verified_kernels_are_used_and_cached(first_use, monkeypatch):
    args = tensors(1, 2, 2, 4, 1)
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert torch.equal(dtn(*args), dtn_triton(*args))
    assert len(notes(first_use)) == 1

    kernels_work.cache_clear()  # another process
    monkeypatch.setattr(dtn_triton_check, 'CHILD', 'raise RuntimeError')
    assert can_use(args[0])


@pytest.mark.parametrize(
    ('kernel', 'fault', 'message'),
    [
        ('normalize.normalize_kernel', 'os.abort()', 'exit status -6'),
        slow('normalize.normalize_kernel', 'time.sleep(1000)', 'it took more than 15 seconds'),
        slow('normalize.normalize_kernel', 'args[12].mul_(1.05)', r"relative errors \{'y': '5"),
        slow('along.back_along_x_kernel', 'args[11].mul_(1.05)', r"relative errors \{'x': '5"),
        slow('prepare.pool_kernel', 'raise RuntimeError("no image")', 'RuntimeError: no image'),
    ],
)
def test_kernels_that_fail_the_comparison_are_not_used(first_use, monkeypatch, kernel, fault, message):
    monkeypatch.setattr(dtn_triton_check, 'CHILD', BROKEN.format(kernel=kernel, fault=fault) + dtn_triton_check.CHILD)
    if 'sleep' in fault:
        monkeypatch.setattr(dtn_triton_check, 'SECONDS', 15)
    args = tensors(1, 2, 2, 4, 1)
    with pytest.warns(UserWarning, match=message):
        y = dtn(*args, pool=2)
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert torch.equal(dtn(*args, pool=2), y)
    assert_near('y', y, eager_dtn(*args, pool=2))
    assert notes(first_use) == []
