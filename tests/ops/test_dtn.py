"""DTN as a function: the CPU kernel and the eager form against the dense float64 transcription, and at the limits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import fuzz_dtn
from tests.fuzz_dtn import NAMES, arguments, assert_equals_dense, dense, forward_and_gradients
from tests.helpers.cases import slow
from tests.helpers.compare import assert_near
from tokennorm.ops.cpu import kernel
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn

ROOT = Path(__file__).resolve().parents[2]


# batch, height, width, channels, heads, pool: why
CASES = [
    (2, 8, 8, 12, 4, 1),  # a square neighborhood of heads
    (2, 5, 9, 12, 3, 1),  # heads that form no square
    (3, 1, 11, 6, 2, 1),  # one row
    (2, 13, 1, 6, 2, 1),  # one column
    (2, 1, 1, 6, 2, 1),  # one token
    (2, 6, 7, 5, 5, 1),  # one channel a head
    (2, 8, 12, 8, 2, 4),  # pooled, whole cells
    (3, 9, 7, 8, 2, 2),  # pooled, partial cells
    (1, 3, 2, 8, 2, 4),  # pooled into one cell
    (1, 3, 9, 8, 2, 4),  # pooled by more than the height
]


@pytest.mark.parametrize('a1', [-100, -1, -0.02, 0, 0.02, 0.1])
@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_float32_equals_the_dense_transcription(batch, height, width, channels, heads, pool, a1):
    assert_equals_dense(arguments(batch, height, width, channels, heads, a1), pool=pool)


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_the_eager_form_equals_it_too(batch, height, width, channels, heads, pool, dtype):
    valid = torch.randint(1, 14, (batch, 2)).clamp(max=torch.tensor([height, width]))
    for sides in (None, valid):
        args = arguments(batch, height, width, channels, heads)
        assert_equals_dense(args, dtype, pool=pool, valid=sides, function=eager_dtn)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES[:2] + CASES[6:8])
def test_half_precision_loses_only_its_own_digits(batch, height, width, channels, heads, pool, dtype):
    assert_equals_dense(arguments(batch, height, width, channels, heads), dtype, pool=pool)


# batch, height, width, channels, heads, pool, a1: why
LARGE_CASES = [
    (1, 130, 7, 20, 2, 1, -1),  # many rows, a block of channels that is not full
    (1, 5, 230, 6, 2, 1, -1),  # several tiles of columns, forward and backward
    (1, 3, 230, 6, 2, 1, -0.001),  # a filter that is wider than a tile
    (1, 140, 3, 4, 2, 1, 0),  # a tile whose filters reach the whole image
    (2, 262, 5, 4, 2, 2, -1),  # pooled rows
    (1, 9, 8, 150, 3, 1, -1),  # several groups of blocks, heads that share a block
]


@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool', 'a1'), LARGE_CASES)
def test_tiles_and_blocks_add_up(batch, height, width, channels, heads, pool, a1):
    args = arguments(batch, height, width, channels, heads, a1)
    if a1 > -0.1:
        args[-1][:, 1:] *= 0.01
    assert_equals_dense(args, pool=pool)


@pytest.mark.compiler
@pytest.mark.parametrize('valid', [None, [[150, 40], [17, 33]]])
def test_the_number_of_threads_changes_no_bit(valid):
    args = arguments(2, 150, 40, 40, 2, -1)
    valid = None if valid is None else torch.tensor(valid)
    grad_y = torch.randn(args[0].shape)
    results = []
    for threads in (1, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            results.append(forward_and_gradients(dtn, args, torch.float32, grad_y, valid=valid))
        finally:
            torch.set_num_threads(before)
    for name, a, b in zip(NAMES, *results, strict=True):
        assert torch.equal(a, b), name


@pytest.mark.compiler
@pytest.mark.parametrize(('cases', 'seed', 'largest'), [(4, 0, 12), slow(200, 1000, 24)])
def test_random_cases(cases, seed, largest):
    """Random shapes, dtypes, positions, lambdas and rectangles; `python -m tests.fuzz_dtn` runs more."""
    threads = torch.get_num_threads()
    taken = [fuzz_dtn.compare(case, largest) for case in range(seed, seed + cases)]
    torch.set_num_threads(threads)
    assert sum(found is not None for found in taken) > 0.75 * cases


@pytest.mark.slow
def test_random_cases_under_sanitizers(tmp_path):
    """Compiled with GCC's address and undefined behavior sanitizers, which end the process, and NaN in fresh memory."""
    gcc = shutil.which('g++')
    library = gcc and subprocess.check_output([gcc, '-print-file-name=libasan.so'], text=True).strip()
    if not library or not os.path.isabs(library):
        pytest.skip('GCC with its sanitizers is not installed')
    compiler = tmp_path / 'compiler'  # options after those of the kernel: optimized, it would compile for minutes
    compiler.write_text(
        f'#!/bin/sh\nexec {gcc} "$@" -O0 -DPOISON -fsanitize=address,undefined -fno-sanitize-recover=undefined\n'
    )
    compiler.chmod(0o755)
    environment = os.environ | dict(
        CXX=str(compiler), TOKENNORM_CACHE=str(tmp_path), LD_PRELOAD=library, ASAN_OPTIONS='detect_leaks=0'
    )
    command = [sys.executable, '-m', 'tests.fuzz_dtn', '--cases', '200', '--seed', '2000']
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize('pool', [1, 4])
@pytest.mark.parametrize('a1', [-1, 0.02])
def test_second_backward_over_the_same_graph_is_equal(pool, a1):
    """Nothing that the first one needs is overwritten by it."""
    args = [t.float().requires_grad_() for t in arguments(2, 24, 20, 8, 2, a1)]
    y = dtn(*args, pool=pool)
    grad_y = torch.randn(y.shape)
    first = torch.autograd.grad(y, args, grad_y, retain_graph=True)
    for name, a, b in zip(NAMES[1:], first, torch.autograd.grad(y, args, grad_y), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize('a1', [-1, 0.02])
@pytest.mark.parametrize('pool', [1, 2, 4])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_an_image_in_a_padded_batch_is_as_alone(pool, a1, dtype):
    args = arguments(4, 11, 14, 8, 2, a1)
    valid = torch.tensor([[11, 14], [5, 14], [7, 3], [1, 1]])
    assert_equals_dense(args, dtype, pool=pool, valid=valid)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_nothing_crosses_the_edge_of_the_valid_rectangle(dtype):
    x, *rest = (t.to(dtype) for t in arguments(2, 9, 8, 6, 3))
    valid = torch.tensor([[4, 5], [9, 2]])
    for image, (height, width) in enumerate(valid.tolist()):
        other = x.clone()
        other[image, height:] = 1e4
        other[image, :, width:] = -3e3
        same, changed = (dtn(t, *rest, valid=valid)[image, :height, :width] for t in (x, other))
        assert_near('y', changed, same, dtype=x.dtype)
        leaf = other.requires_grad_()
        dtn(leaf, *rest, valid=valid)[image, :height, :width].sum().backward()
        assert leaf.grad[image, height:].abs().sum() == 0
        assert leaf.grad[image, :height, width:].abs().sum() == 0


@pytest.mark.parametrize(('pool', 'valid'), [(1, None), slow(2, None), slow(2, [[2, 2], [1, 3]])])
def test_gradients_of_the_eager_form(pool, valid):
    """First and second derivatives, in double."""
    args = [t.requires_grad_() for t in arguments(1 if valid is None else 2, 2, 3, 4, 2)]
    valid = None if valid is None else torch.tensor(valid)
    assert torch.autograd.gradcheck(lambda *a: dtn(*a, pool=pool, valid=valid), args)
    assert torch.autograd.gradgradcheck(lambda *a: dtn(*a, pool=pool, valid=valid), args, atol=1e-4)


@given(
    st.integers(1, 64),
    st.integers(1, 64),
    st.sampled_from([(4, 1), (6, 3), (3, 3), (10, 5), (8, 2)]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([-100.0, -1.0, -0.02, 0.0, 0.02, 0.1]),
    st.floats(-3, 3, width=32),
    st.sampled_from(['random', 'constant', 'zero', 'offset', 'huge', 'tiny']),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
@settings(max_examples=30, deadline=None)
def test_finite_tokens_give_finite_results(height, width, shape, pool, a1, linear, kind, dtype):
    channels, heads = shape
    torch.manual_seed(height * 64 + width)
    x, *rest = arguments(2, height, width, channels, heads, a1)
    rest[-1][:, 1:] = linear
    x = {
        'random': lambda: x,
        'constant': lambda: torch.full_like(x, 3),
        'zero': lambda: torch.zeros_like(x),
        'offset': lambda: x + 1e4,
        'huge': lambda: x * 1e3,
        'tiny': lambda: x * 1e-6,
    }[kind]()
    grad_y = torch.randn(x.shape).double()
    y, *grads = forward_and_gradients(dtn, [x, *rest], dtype, grad_y, pool=pool)
    for name, t in zip(NAMES, (y, *grads), strict=True):
        assert t.isfinite().all(), name
    if kind in ('constant', 'zero'):
        bias = rest[1].to(dtype).expand_as(y)
        torch.testing.assert_close(y, bias, rtol=0, atol=2e-2 if dtype == torch.bfloat16 else 3e-3)


def test_constant_channel_has_no_inter_token_variance():
    x, *rest = (t.float() for t in arguments(1, 12, 12, 4, 2, a1=-1))
    x = x[:, :1, :1].expand(1, 12, 12, 4).contiguous()
    rest[2][:], rest[3][:] = -100, -100  # lambda = 0: statistics across tokens alone
    assert torch.equal(dtn(x, *rest), rest[1].expand_as(x))


@pytest.mark.parametrize('a1', [-1, -0.02, 0.02])
def test_a_common_offset_costs_no_more_digits_than_in_layer_norm(a1):
    x, *rest = arguments(2, 24, 20, 8, 2, a1)
    x = (x + 1e4).float().double()
    rest = [t.float().double() for t in rest]
    expected = dense(x, *rest)
    error = (dtn(x.float(), *(t.float() for t in rest)) - expected).abs().max()
    weight, bias = rest[:2]
    layer_norm = F.layer_norm(x, (8,), weight, bias)
    allowed = (F.layer_norm(x.float(), (8,), weight.float(), bias.float()) - layer_norm).abs().max()
    assert error < 3 * allowed + 1e-4, f'{error:.1e} where LayerNorm has {allowed:.1e}'


def test_a_variance_of_nothing_is_nothing():
    """P of one token alone and little of the intra-token variance: what E[x^2] - E[x]^2 leaves is divided by eps."""
    args = arguments(2, 12, 10, 8, 2, a1=-100)
    args[4].fill_(-8)
    with torch.no_grad():
        actual = dtn(*(t.float() for t in args))
    assert_near('y', actual, dense(*args))


@pytest.mark.parametrize('function', [dtn, eager_dtn])
def test_a_variance_is_never_below_zero(function):
    """Of equal neighbors far from the image's mean, E[x^2] - E[x]^2 is rounding of either sign."""
    x, *rest = (t.float() for t in arguments(1, 16, 16, 64, 16, a1=-0.3))
    x[:, :8], x[:, 8:] = 1000, -1000
    rest[3][:] = -100  # lambda = 0
    assert function(x, *rest).isfinite().all()


def test_the_mean_of_a_token_keeps_its_digits():
    """A sum of 4096 channels drops 0.3 of each of them once it exceeds 2^23."""
    x = (100_000.3125 + torch.tensor([1.0, -1.0]).repeat(2048))[None, None, None]
    _, *rest = (t.float() for t in arguments(1, 1, 1, 4096, 1))
    rest[2][:], rest[3][:] = 100, 100  # lambda = 1
    expected = F.layer_norm(x.double(), (4096,), rest[0].double(), rest[1].double())
    assert (dtn(x, *rest) - expected).abs().max() < 0.03


def test_gradient_of_a_p_that_is_one_neighbor():
    """Its own gradient is nearly 0; that of sums over 3200 tokens, whose rounding is 2e-3, must not take its place."""
    args = arguments(2, 40, 40, 8, 1)
    args[0] = args[0].float().double()
    args[-1] = torch.tensor([[-21, -40.9, 0]]).double()  # nearly e^20 times as heavy at dx = -1 as at 0
    grad_y = torch.randn(args[0].shape)
    actual = forward_and_gradients(dtn, args, torch.float32, grad_y)[-1]
    expected = forward_and_gradients(dense, args, torch.float64, grad_y.double())[-1]
    assert 0 < expected.abs().max() < 1e-3
    assert (actual - expected).abs().max() < 6e-4


@pytest.mark.compiler
def test_which_positions_the_kernel_takes():
    x = torch.randn(1, 224, 224, 4)

    def takes(*position, pool=1):
        return kernel.takes(x, torch.tensor([position]), pool)

    assert takes(-1.0, 2.0, -2.0)
    assert takes(-100.0, 0.0, 0.0)
    assert takes(-0.01, 0.0, 0.0)
    assert not takes(0.0, 0.0, 0.0)  # matrix products are faster on so large a grid
    assert takes(0.0, 0.0, 0.0, pool=2)
    assert not takes(0.02, 0.0, 0.0)  # exp(0.02 * 223 ** 2)
    assert takes(0.02, 0.0, 0.0, pool=8)
    assert not takes(-0.5, 20.0, 0.0)  # exp(200) at an offset of 20
    assert not takes(-1e-30, 0.0, 1.0)
    assert not takes(float('nan'), 0.0, 0.0)
    assert not takes(0.0, float('inf'), 0.0)


def test_tokens_and_gradients_need_not_be_contiguous():
    x, *rest = (t.float() for t in arguments(2, 6, 8, 4, 2))
    grad_y = torch.randn(2, 6, 8, 4)
    results = []
    for layout in (torch.contiguous_format, 'transposed', 'expanded'):
        leaf = x.clone().requires_grad_()
        tokens = leaf if layout != 'transposed' else leaf.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
        y = dtn(tokens, *rest)
        grad = grad_y.sum(dim=0, keepdim=True).expand_as(y)
        y.backward(grad if layout == 'expanded' else grad.contiguous())
        results.append((y, leaf.grad))
    for y, grad in results[1:]:
        assert_near('y', y, results[0][0])
        assert_near('gradient', grad, results[0][1], 'backward')


def test_parameters_need_not_be_contiguous():
    x, *rest = (t.float().requires_grad_() for t in arguments(1, 4, 5, 6, 3))
    expected = torch.autograd.grad(dtn(x, *rest).square().sum(), rest)
    strided = [t.detach().T.contiguous().T.requires_grad_() for t in rest]
    assert not strided[-1].is_contiguous()
    actual = torch.autograd.grad(dtn(x, *strided).square().sum(), strided)
    for name, a, e in zip(('weight', 'bias', 'mean_logit', 'var_logit', 'position'), actual, expected, strict=True):
        assert torch.equal(a, e), name


def test_only_the_wanted_gradients():
    x, *rest = (t.float() for t in arguments(1, 4, 4, 4, 2))
    rest[-1].requires_grad_()
    dtn(x, *rest).sum().backward()
    assert rest[-1].grad is not None
    assert dtn(x, rest[0], rest[1], None, *rest[3:]).shape == x.shape  # no mixed mean
    assert dtn(x[:0], *rest).shape == (0, 4, 4, 4)
