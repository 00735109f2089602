"""DTN in Triton against the dense float64 transcription.

Where there is a CUDA device they are compiled for it (`-m gpu`); elsewhere Triton's interpreter runs them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.fuzz_dtn import ERRORS, NAMES, arguments, assert_equals_dense, dense, forward_and_gradients
from tests.helpers.cases import slow
from tests.helpers.compare import assert_near

pytest.importorskip('triton')
import triton
import triton.language as tl

from experiments.gpu_kernels import dtn_triton
from experiments.gpu_kernels.dtn_triton import triton_dtn
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn

ROOT = Path(__file__).resolve().parents[2]
CUDA = torch.cuda.is_available()
DEVICE = 'cuda' if CUDA else 'cpu'
pytestmark = [
    pytest.mark.filterwarnings('ignore:Conversion of an array with ndim > 0:DeprecationWarning'),  # the interpreter's
    pytest.mark.filterwarnings('ignore:.*encountered in:RuntimeWarning'),
    *([pytest.mark.gpu] if CUDA else []),
]

# batch, height, width, channels, heads, pool: why
CASES = [
    slow(1, 2, 3, 4, 2, 1),  # two heads
    slow(2, 2, 1, 9, 3, 1),  # one column
    (1, 3, 3, 4, 1, 2),  # pooled, partial windows at both edges
    slow(1, 4, 40, 6, 1, 1),  # more than one block of positions
    slow(1, 2, 2, 72, 1, 1),  # a head in two chunks, the second one partial
    slow(1, 2, 3, 8, 4, 1),  # Eq. 7's square neighborhood
    slow(1, 40, 3, 6, 2, 1),
    slow(1, 3, 9, 4, 1, 4),  # pooled by more than the height
    slow(2, 5, 19, 48, 1, 1),  # 48 channels a head
    slow(1, 9, 10, 5, 5, 2),  # one channel a head
    slow(1, 2, 2, 1024, 16, 1),  # the widest models
]


def on_device(*args, **kwargs):
    """`triton_dtn` on the device, its output on the CPU."""
    kwargs = {key: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}
    return triton_dtn(*(t if t is None else t.to(DEVICE) for t in args), **kwargs).cpu()


def compare(args, dtype=torch.float32, **kwargs):
    allowed = ERRORS | {torch.float32: (1e-5, 1e-4, 1e-4)} if CUDA else ERRORS  # three passes of TF32
    return assert_equals_dense(args, dtype, function=on_device, allowed=allowed, **kwargs)


@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_equals_the_dense_transcription(batch, height, width, channels, heads, pool):
    compare(arguments(batch, height, width, channels, heads), pool=pool)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('a1', 'grid'), [*((a1, (1, 18)) for a1 in (-100, -1, -0.02, 0, 0.02, 0.1)), (-0.02, (18, 1)), (0.1, (18, 1))]
)
def test_every_sign_and_size_of_a1(a1, grid):
    args = arguments(1, *grid, 4, 1)
    args[-1] = torch.tensor([[a1, 0.3, -0.2]]).double()
    compare(args)


@pytest.mark.slow
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_loses_only_its_own_digits(dtype):
    _, *gradients = compare(arguments(1, 2, 3, 8, 1), dtype)
    assert [g.dtype for g in gradients] == [dtype] + [torch.float32] * 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ('height', 'width', 'valid', 'pool'),
    [(2, 3, [[2, 2], [1, 3]], 2), *((3, 19, [[2, 18], [3, 5]], pool) for pool in (1, 2))],
)
def test_padded_batches(height, width, valid, pool):
    """Each image has its own P, and its own band."""
    compare(arguments(2, height, width, 4, 2, a1=-0.3), pool=pool, valid=torch.tensor(valid))


@pytest.mark.slow
@pytest.mark.parametrize('pool', [1, 2])
def test_padding_may_be_nan(pool):
    x, *parameters = (t.float() for t in arguments(2, 4, 5, 4, 1, a1=-0.3))
    valid = torch.tensor([[2, 4], [3, 1]])
    inside = [(0, slice(2), slice(4)), (1, slice(3), slice(1))]
    results = []
    for padding in (0.0, float('nan')):
        given = torch.full_like(x, padding)
        for at in inside:
            given[at] = x[at]
        given.requires_grad_()
        y = on_device(given, *parameters, pool=pool, valid=valid)
        total = sum(y[at].square().sum() for at in inside)
        (grad,) = torch.autograd.grad(total, given)
        results.append(torch.cat([t[at].flatten() for t in (y.detach(), grad) for at in inside]))
    assert torch.equal(*results)


@pytest.mark.slow
def test_only_var_takes_the_mean_of_the_token():
    args = arguments(1, 3, 3, 4, 1)
    args[3] = None
    compare(args)


@pytest.mark.slow
def test_large_common_offset_keeps_its_digits():
    args = arguments(1, 3, 3, 2, 1)
    args[0] = (args[0] + 1e4).float().double()
    args[4][:] = -30.0  # inter-token variance only: the term that cancels
    args[5] = torch.tensor([[-0.05, 0.0, 0.1]]).double()
    grad_y = torch.randn(args[0].shape).double()
    actual = forward_and_gradients(on_device, args, torch.float32, grad_y)
    expected = forward_and_gradients(dense, args, torch.float64, grad_y)
    for name, a, e in zip(NAMES[:2], actual, expected, strict=False):
        # The means of a token's channels, 1e4, are rounded by 5e-4.
        assert (a - e).abs().max() < 1e-3 * e.abs().max(), name


# ---- Bands


@pytest.mark.slow
@pytest.mark.parametrize(
    ('position', 'grid'),
    [
        ([-0.5, 6.0, -6.0], (1, 40)),
        ([-0.5, 6.0, -6.0], (40, 1)),
        ([-0.5, 6.0, -6.0], (3, 70)),
        ([-0.02, -1.0, 1.0], (3, 70)),
        ([0.0, 40.0, -1.0], (3, 70)),
    ],
)
def test_peaks_beyond_the_border(position, grid):
    args = arguments(1, *grid, 4, 1)
    args[-1] = torch.tensor([position]).double()
    compare(args)


@triton.jit
def bands_kernel(out_ptr, position_ptr, size, first, last):
    square, linear = tl.load(position_ptr), tl.load(position_ptr + 1)
    begin, end = dtn_triton.band(first, last, square, linear, size)
    tl.store(out_ptr, begin)
    tl.store(out_ptr + 1, end)
    begin, end = dtn_triton.band_of_columns(first, last, square, linear, size)
    tl.store(out_ptr + 2, begin)
    tl.store(out_ptr + 3, end)


@pytest.mark.parametrize('square', [-100.0, -1.0, -0.05, -1e-30, 0.0, 0.3])
@pytest.mark.parametrize('linear', [0.0, 0.4, -7.0, 1e4])
def test_bands_leave_out_nothing_that_float32_resolves(square, linear):
    size, out = 50, torch.zeros(4, dtype=torch.int32, device=DEVICE)
    position = torch.tensor([square, linear], device=DEVICE)
    index = torch.arange(80).double()  # rows may be outside of an image that has padding
    offset = index[:size] - index[:, None]
    exponent = square * offset * offset + linear * offset
    heavy = exponent - exponent.amax(dim=1, keepdim=True) > -22
    for first, last in [(0, 0), (0, 15), (16, 31), (32, 47), (49, 49), (48, 63), (64, 79)]:
        bands_kernel[1,](out, position, size, first, last)
        begin, end, first_row, last_row = out.tolist()
        columns = heavy[first : last + 1].any(dim=0).nonzero()
        assert begin <= columns.min()
        assert end > columns.max()
        rows = heavy[:size, first : last + 1].any(dim=1).nonzero()
        if len(rows):
            assert first_row <= rows.min()
            assert last_row > rows.max()
        if square == -1 and abs(linear) < 1:
            assert end - begin <= last - first + 1 + 2 * 6, 'wider than the weights'
            assert last_row - first_row <= last - first + 1 + 2 * 7, 'wider than the weights'


def test_nan_in_position_reaches_the_result():
    args = [t.float() for t in arguments(1, 3, 3, 4, 1)]
    args[-1][0, 0] = float('nan')
    assert on_device(*args).isnan().all()


# ---- Autograd, and what runs where


def test_gradient_of_positions_alone():
    x, *parameters = (t.float().to(DEVICE) for t in arguments(1, 2, 3, 4, 1))
    parameters[-1].requires_grad_()
    triton_dtn(x, *parameters).square().sum().backward()
    expected = parameters[-1].grad.clone()
    parameters[-1].grad = None
    eager_dtn(x, *parameters).square().sum().backward()
    assert_near('position', parameters[-1].grad, expected, 'backward')


def test_second_derivative_is_refused():
    x, *parameters = (t.float().to(DEVICE).requires_grad_() for t in arguments(1, 1, 2, 2, 1))
    grad_y = torch.randn(x.shape, device=DEVICE, requires_grad=True)
    (dx,) = torch.autograd.grad(triton_dtn(x, *parameters), x, grad_y, create_graph=True)
    with pytest.raises(RuntimeError, match='once_differentiable'):
        dx.sum().backward()


def test_importing_the_package_switches_it_on(monkeypatch):
    """On a GPU, and not for float64."""
    module = sys.modules['tokennorm.ops.dtn']
    assert module.gpu_dtn is triton_dtn
    calls = []
    monkeypatch.setattr(module, 'gpu_dtn', lambda *args, **kwargs: calls.append(args) or eager_dtn(*args, **kwargs))
    args = [t.float().to(DEVICE) for t in arguments(1, 2, 3, 4, 1)]
    dtn(*args)
    dtn(*(t.double() for t in args))
    assert len(calls) == int(CUDA)


@pytest.mark.gpu
@pytest.mark.parametrize('a1', [-1, -0.02, 0, 0.02])
def test_detector_grid(a1):
    """The stride-4 stage of 800 x 1333 against the eager form in float64."""
    args = arguments(1, 200, 334, 64, 1)
    args[5] = torch.tensor([[a1, 0.1, -0.1]]).double()
    grad_y = torch.randn(args[0].shape).double()
    actual = forward_and_gradients(on_device, args, torch.float32, grad_y)
    expected = forward_and_gradients(eager_dtn, [t.cuda() for t in args], torch.float64, grad_y.cuda())
    for name, a, e in zip(NAMES, actual, expected, strict=True):
        assert_near(name, a, e.cpu(), 'backward')


@pytest.mark.gpu
def test_same_input_gives_the_same_bits():
    """The interpreter runs one program after the other."""
    args = arguments(1, 40, 30, 32, 2)
    grad_y = torch.randn(args[0].shape)
    results = [forward_and_gradients(on_device, args, torch.float32, grad_y) for _ in range(2)]
    for name, a, b in zip(NAMES, *results, strict=True):
        assert torch.equal(a, b), name


@pytest.mark.gpu
def test_report_to_paste_into_an_issue(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    from dtn_gpu import report

    block = report('cuda')
    with capsys.disabled():
        print(f'\n\nPlease paste these lines into an issue, also if tests failed:\n\n{block}\n')


@pytest.mark.slow
def test_report_has_errors_and_times_of_each_contender(monkeypatch):
    """On the CPU, in the interpreter."""
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    import dtn_gpu

    monkeypatch.setattr(dtn_gpu, 'ODD', (2, 3, 5, 8, 2, 2))
    block = dtn_gpu.report(DEVICE, shapes=[(1, 2, 3, 4, 1, 1)], seconds=0).splitlines()
    assert block[0] == block[-1] == '```'
    rows = [line.split() for line in block if line.startswith('  float32') or line.startswith('  bfloat16')]
    for row in rows:
        found = [float(error) for error in row[-7:]]
        assert 0 < max(found) < (1e-4 if row[0] == 'float32' else 5e-2), row
    assert sum(dtn_gpu.TRITON in line for line in block) == 3
    assert min(float(block[-2].split()[-i]) for i in (2, 4)) > 0  # milliseconds; the last one is MiB


@pytest.mark.slow
def test_compiles_for_each_architecture_without_spilling():
    """What the interpreter takes the compiler may refuse. sm_120 has the least shared memory per block, 99 KB."""
    env = {k: v for k, v in os.environ.items() if k != 'TRITON_INTERPRET'}
    env['PYTHONPATH'] = os.pathsep.join([str(ROOT), str(ROOT / 'projects')])
    command = [sys.executable, '-m', 'tests.compile_kernels']
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {'sm_80', 'sm_86', 'sm_89', 'sm_90', 'sm_120'}
    assert len(lines) == 5 * 5 * 9
    for line in lines:
        registers, stack, shared = map(int, line.split()[-3:])
        assert registers <= 144, line
        assert stack == 0, line
        assert shared <= 99 * 1024, line
