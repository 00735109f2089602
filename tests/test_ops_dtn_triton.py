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
import torch.nn.functional as F

from tests.helpers.cases import slow
from tests.helpers.compare import assert_near
from tests.reference import dense_dtn, relative_positions
from tokennorm.ops.moments import tokens_inside

pytest.importorskip('triton')
from tokennorm.ops import dtn_cpu, dtn_triton_check
from tokennorm.ops import dtn_triton as dtn_triton_module
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_triton import can_use, dtn_triton
from tokennorm.ops.dtn_triton_check import kernels_work

CUDA = torch.cuda.is_available()
DEVICE = 'cuda' if CUDA else 'cpu'
pytestmark = [
    pytest.mark.filterwarnings('ignore:Conversion of an array with ndim > 0:DeprecationWarning'),  # the interpreter's
    *([pytest.mark.gpu] if CUDA else []),
]
NAMES = ['x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position']
BFLOAT16 = 4e-3 if CUDA else 8e-3  # half a step when rounded; the interpreter cuts off, a whole one
TOKENS = {torch.float32: 1e-5, torch.float16: 5e-4, torch.bfloat16: BFLOAT16}
GRADIENTS = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: BFLOAT16}

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


def inputs(batch, height, width, channels, heads, only_var=False, dtype=torch.float32):
    """Random tokens and parameters: a1 of both signs, lambda between 0.1 and 0.9. And a gradient of the output."""
    x = (3 * torch.randn(batch, height, width, channels) + 1).to(dtype)
    shapes = [(channels,), (channels,), (heads,), (heads,)]
    parameters = [torch.randn(shape) for shape in shapes] + [0.3 * torch.randn(heads, 3)]
    if only_var:
        parameters[2] = None
    return [x, *parameters], torch.randn(x.shape).to(dtype)


def gradients(function, tensors, grad_y):
    """Output and the gradients of all tensors, None for one that is None."""
    tensors = [t.detach().clone().requires_grad_() if t is not None else None for t in tensors]
    y = function(*tensors)
    grads = iter(torch.autograd.grad(y, [t for t in tensors if t is not None], grad_y.to(y), allow_unused=True))
    return y.detach(), [next(grads) if t is not None else None for t in tensors]


def run(tensors, grad_y, **kwargs):
    """`dtn_triton` on the device, output and gradients back on the CPU."""
    tensors = [t.to(DEVICE) if t is not None else None for t in tensors]
    kwargs = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    y, grads = gradients(lambda *t: dtn_triton(*t, **kwargs), tensors, grad_y.to(DEVICE))
    return y.cpu(), [g.cpu() if g is not None else None for g in grads]


def reference(x, *parameters, **kwargs):
    return dense_dtn(x.flatten(1, 2), tuple(x.shape[1:3]), *parameters, **kwargs).view(x.shape)


def run_reference(tensors, grad_y, **kwargs):
    tensors = [t.double() if t is not None else None for t in tensors]
    return gradients(lambda *t: reference(*t, **kwargs), tensors, grad_y.double())


def assert_gradients_near(actual, expected, dtype=torch.float32):
    for name, a, e in zip(NAMES, actual, expected, strict=True):
        if a is None:
            continue
        assert a.shape == e.shape, name
        error = (a.double() - e).abs().max().item()
        # A gradient that all but vanishes is what rounding leaves of its terms; those of a1 carry squared offsets.
        scale = max(e.abs().max().item(), 1 if name == 'position' else 0.1)
        bound = GRADIENTS[dtype if name == 'x' else torch.float32] * scale
        assert error <= bound, f'gradient of {name}: {error:.1e} > {bound:.1e}'


def assert_equals_reference(tensors, grad_y, **kwargs):
    """Output and gradients; returns the gradients."""
    y, grads = run(tensors, grad_y, **kwargs)
    expected_y, expected_grads = run_reference(tensors, grad_y, **kwargs)
    assert_near('y', y, expected_y)
    assert_gradients_near(grads, expected_grads)
    return grads


@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_equals_the_dense_transcription(batch, height, width, channels, heads, pool):
    assert_equals_reference(*inputs(batch, height, width, channels, heads), pool=pool)


@pytest.mark.parametrize('dtype', [slow(torch.float16), torch.bfloat16])
def test_statistics_are_float32_for_every_dtype(dtype):
    """y is as near as rounding the exact result allows, which statistics in 16 bits would not give."""
    tensors, grad_y = inputs(1, 2, 3, 8, 1, dtype=dtype)
    y, grads = run(tensors, grad_y)
    expected_y, expected_grads = run_reference(tensors, grad_y)
    assert y.dtype == dtype
    assert [g.dtype for g in grads] == [dtype] + [torch.float32] * 5
    assert (y - expected_y).abs().max() <= TOKENS[dtype] * expected_y.abs().max()
    assert_gradients_near(grads, expected_grads, dtype)


def test_parameters_may_have_the_dtype_of_the_tokens():
    tensors, grad_y = inputs(1, 2, 2, 4, 1)
    tensors = [t.bfloat16() for t in tensors]
    y, grads = run(tensors, grad_y.bfloat16())
    expected_y, expected_grads = run_reference(tensors, grad_y.bfloat16())
    assert y.dtype == torch.bfloat16
    assert all(g.dtype == torch.bfloat16 for g in grads)
    for name, a, e in zip(['y', *NAMES], [y, *grads], [expected_y, *expected_grads], strict=True):
        assert (a.double() - e).abs().max() <= BFLOAT16 * e.abs().max(), name


@pytest.mark.parametrize(
    ('a1', 'grid'),
    [
        (0.36, (1, 10)),
        *(slow(a1, (18, 1)) for a1 in (-100, -1, -0.02, 0, 0.02, 0.1)),
        *(slow(a1, (1, 18)) for a1 in (-100, -1, -0.02, 0, 0.02, 0.1)),
    ],
)
def test_every_sign_and_size_of_a1(a1, grid):
    """Where it is largest the exponents are up to 29 apart, all weight at an end; at -100 it is on the token itself."""
    tensors, grad_y = inputs(1, *grid, 4, 1)
    tensors[5] = torch.tensor([[a1, 0.3, -0.2]])
    assert_equals_reference(tensors, grad_y)


@pytest.mark.parametrize('pool', [slow(1), 2])
def test_only_var_takes_the_mean_of_the_token(pool):
    assert assert_equals_reference(*inputs(1, 3, 3, 4, 1, only_var=True), pool=pool)[3] is None


def test_lambda_close_to_one_keeps_gradients():
    tensors, grad_y = inputs(1, 2, 2, 4, 1)
    tensors[3], tensors[4] = torch.full((1,), 20.0), torch.full((1,), 20.0)
    _, grads = run(tensors, grad_y)
    _, expected = run_reference(tensors, grad_y)
    for name, a, e in zip(NAMES[3:], grads[3:], expected[3:], strict=True):
        assert (a - e).abs().max() <= 0.02 * e.abs().max(), name


@pytest.mark.parametrize('pool', [1, slow(2)])
def test_a_large_common_offset_keeps_its_digits(pool):
    tensors, grad_y = inputs(1, 4, 4, 2, 1)
    tensors[0] = tensors[0] + 1e4
    tensors[4] = torch.full((1,), -30.0)  # inter-token variance alone: the term that cancels
    tensors[5] = torch.tensor([[-0.05, 0.0, 0.1]])
    y, grads = run(tensors, grad_y, pool=pool)
    expected_y, expected_grads = run_reference(tensors, grad_y, pool=pool)
    # The means of a token's channels, 1e4, are rounded by 5e-4.
    error = (y - expected_y).abs().max() / expected_y.abs().max()
    assert error < 1e-3, f'{error:.1e}'
    error = (grads[0] - expected_grads[0]).abs().max() / expected_grads[0].abs().max()
    assert error < 1e-3, f'{error:.1e}'


@pytest.mark.parametrize('value', [slow(0.0), 7.3])
def test_constant_tokens_stay_finite(value):
    """All variances are zero or rounded to less, where the gradient of the clamp is zero."""
    tensors, grad_y = inputs(1, 2, 2, 4, 1)
    tensors[0] = torch.full_like(tensors[0], value)
    y, grads = run(tensors, grad_y)
    assert_near('y', y, tensors[2].expand(y.shape))
    for name, g in zip(NAMES, grads, strict=True):
        assert g.isfinite().all(), name


def valid_weights(position, height, width, valid):
    """P of Eq. 6 (N, T, T) with columns in the valid rectangle alone."""
    logits = torch.einsum('ijk,nk->nij', relative_positions(height, width), position)
    token = torch.arange(height * width)
    inside = (token // width < valid[0]) & (token % width < valid[1])
    return logits.masked_fill(~inside, float('-inf')).softmax(dim=-1)


def test_padding_has_no_weight():
    """Tokens of the image take inter-token statistics from it alone, and padding is normalized by its own."""
    valid = torch.tensor([[3, 2], [2, 3]])
    tensors, grad_y = inputs(2, 3, 3, 4, 1)

    def padded(x, *parameters):
        weights = [valid_weights(parameters[-1], 3, 3, v) for v in valid]
        images = [reference(x[b : b + 1], *parameters, positional_weights=weights[b]) for b in range(2)]
        outside = F.layer_norm(x, x.shape[-1:], *parameters[:2])
        return torch.where(tokens_inside(x, valid), torch.cat(images), outside)

    y, grads = run(tensors, grad_y, valid=valid)
    expected_y, expected_grads = gradients(padded, [t.double() for t in tensors], grad_y.double())
    assert_near('y', y, expected_y)
    assert_gradients_near(grads, expected_grads)


@pytest.mark.parametrize('pool', [slow(1), 2, slow(4)])
def test_the_valid_part_is_what_it_is_alone(pool):
    """Cells at its edge average the valid tokens that they hold; what the padding holds does not matter."""
    height, width = 3, 3
    tensors, grad_y = inputs(1, 4, 6, 4, 1)
    tensors[0][:, height:], tensors[0][:, :, width:] = 1e6, -1e6
    grad_y[:, height:], grad_y[:, :, width:] = 0, 0
    valid = torch.tensor([[height, width]], dtype=torch.int32)
    y, grads = run(tensors, grad_y, pool=pool, valid=valid)
    tensors[0], grad_y = (t[:, :height, :width].contiguous() for t in (tensors[0], grad_y))
    expected_y, expected_grads = run_reference(tensors, grad_y, pool=pool)
    assert_near('y', y[:, :height, :width], expected_y)
    assert (grads[0][:, height:] == 0).all()
    assert (grads[0][:, :, width:] == 0).all()
    grads[0] = grads[0][:, :height, :width]
    assert_gradients_near(grads, expected_grads)


@pytest.mark.gpu  # the interpreter runs one program after the other
def test_the_same_input_gives_the_same_bits():
    tensors, grad_y = inputs(1, 2, 2, 4, 2)
    y, grads = run(tensors, grad_y)
    again_y, again = run(tensors, grad_y)
    assert torch.equal(y, again_y)
    for name, a, b in zip(NAMES, grads, again, strict=True):
        assert torch.equal(a, b), name


def test_strides_of_x_do_not_matter():
    tensors, _ = inputs(1, 2, 2, 4, 1)
    x, *parameters = (t.to(DEVICE) for t in tensors)
    strided = x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not strided.is_contiguous()
    assert torch.equal(dtn_triton(strided, *parameters), dtn_triton(x, *parameters))


def test_a_second_derivative_is_refused():
    tensors, grad_y = inputs(1, 1, 2, 2, 1)
    x, *parameters = (t.to(DEVICE).requires_grad_() for t in tensors)
    grad_y = grad_y.to(DEVICE).requires_grad_()
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
    from tokennorm.ops.dtn import dtn

    tensors, grad_y = inputs(1, 200, 334, 64, 1)
    tensors[5] = torch.tensor([[a1, 0.1, -0.1]])
    y, grads = run(tensors, grad_y)
    doubles = [t.double().cuda() for t in tensors]
    expected_y, expected_grads = gradients(dtn, doubles, grad_y.double().cuda())
    assert_near('y', y, expected_y.cpu())
    for name, a, e in zip(NAMES, grads, expected_grads, strict=True):
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
    assert len({line[4] for line in lines}) == 8
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
from tokennorm.ops import dtn_kernels
class Broken:
    kernel = dtn_kernels.{kernel}
    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            self.kernel[grid](*args, **kwargs)
            {fault}
        return launch
dtn_kernels.{kernel} = Broken()
"""


@pytest.fixture
def first_use(monkeypatch, tmp_path):
    """As on a GPU that has not run the kernels before; the interpreter's device counts as one."""
    kernels_work.cache_clear()
    dtn_cpu.library()  # not compiled again in the other cache directory
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path))
    monkeypatch.setattr(dtn_triton_module, '_suits', lambda x: True)
    if not CUDA:
        monkeypatch.setattr(dtn_triton_check, 'CHILD', SMALL + dtn_triton_check.CHILD)
    yield tmp_path
    kernels_work.cache_clear()


def verdicts(folder):
    return [path.read_text() for path in folder.glob('*.verdict')]


def no_child(*args):
    pytest.fail('compared again')


def test_verified_kernels_are_used_and_cached(first_use, monkeypatch):
    tensors, _ = inputs(1, 2, 2, 4, 1)
    tensors = [t.to(DEVICE) for t in tensors]
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert torch.equal(dtn(*tensors), dtn_triton(*tensors))
    assert verdicts(first_use) == ['passed']

    kernels_work.cache_clear()  # another process
    monkeypatch.setattr(dtn_triton_check, '_verdict_of_child', no_child)
    assert can_use(tensors[0])


@pytest.mark.parametrize(
    ('kernel', 'fault', 'message', 'remembered'),
    [
        ('normalize_kernel', 'os.abort()', 'it was killed by SIGABRT', True),
        slow('normalize_kernel', 'time.sleep(1000)', 'it took more than 15 seconds', True),
        slow('normalize_kernel', 'args[12].mul_(1.05)', r"relative errors \{'y': '5", True),
        slow('back_along_x_kernel', 'args[11].mul_(1.05)', r"relative errors \{'x': '5", True),
        slow('pool_kernel', 'raise RuntimeError("no image")', 'RuntimeError: no image', False),
    ],
)
def test_kernels_that_fail_the_comparison_are_not_used(first_use, monkeypatch, kernel, fault, message, remembered):
    monkeypatch.setattr(dtn_triton_check, 'CHILD', BROKEN.format(kernel=kernel, fault=fault) + dtn_triton_check.CHILD)
    if 'sleep' in fault:
        monkeypatch.setattr(dtn_triton_check, 'SECONDS', 15)
    tensors, _ = inputs(1, 2, 2, 4, 1)
    tensors = [t.to(DEVICE) for t in tensors]
    with pytest.warns(UserWarning, match=message):
        y = dtn(*tensors, pool=2)
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert torch.equal(dtn(*tensors, pool=2), y)
    assert_near('y', y, eager_dtn(*tensors, pool=2))
    assert len(verdicts(first_use)) == remembered
    if remembered:
        kernels_work.cache_clear()  # another process
        monkeypatch.setattr(dtn_triton_check, '_verdict_of_child', no_child)
        with pytest.warns(UserWarning, match=f'{message}.*to repeat it, remove .*verdict'):
            assert not can_use(tensors[0])
