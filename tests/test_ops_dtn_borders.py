"""DTN refuses what does not fit, in the kernel and in the eager form, and loads only a library that it compiled."""

import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from torch.testing import assert_close

from tokennorm.norms import DTN
from tokennorm.ops import dtn_cpu
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


@pytest.mark.parametrize('function', [dtn, eager_dtn])
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
        dict(mean_logit=torch.zeros(5), var_logit=torch.zeros(5), position=torch.zeros(5, 3)),
        dict(mean_logit=torch.zeros(24), var_logit=torch.zeros(24), position=torch.zeros(24, 3)),
        dict(valid=torch.ones(1, 2, dtype=torch.int64)),
        dict(valid=torch.ones(B, 2)),
        dict(valid=torch.ones(B, 2, dtype=torch.bool)),
        dict(valid=torch.ones(B, 2, dtype=torch.int64, device='meta')),
        dict(x=torch.ones(B, H, W, C, dtype=torch.int64)),
        dict(weight=torch.ones(C, dtype=torch.int64)),
        dict(position=torch.zeros(N, 3, dtype=torch.complex64)),
    ],
    ids=lambda replaced: ', '.join(f'{name} {tuple(t.shape)} {t.dtype}' for name, t in replaced.items()),
)
def test_arguments_that_do_not_fit(function, replaced):
    replaced = dict(replaced)
    valid = dict(valid=replaced.pop('valid')) if 'valid' in replaced else {}
    with pytest.raises(ValueError, match=r'DTN takes floating-point x \(B, H, W, C\)'):
        function(*arguments(**replaced), **valid)


@pytest.mark.parametrize('option', [dict(pool=0), dict(pool=-1), dict(form='publishd')])
def test_options_that_do_not_exist(option):
    with pytest.raises(ValueError, match=str(*option.values())):
        dtn(*arguments(), **option)


def test_gradients_without_memory():
    """torch gives a zero gradient that has no storage: the kernel must not read it."""
    x = torch.randn(B, H, W, C, requires_grad=True)
    (grad,) = torch.autograd.grad(dtn(*arguments(x=x)), x, torch._efficientzerotensor((B, H, W, C)))
    assert torch.equal(grad, torch.zeros(B, H, W, C))


def test_pruned_weight():
    norm = DTN(C, N)
    norm.weight.data = norm.weight.data[:8]
    with pytest.raises(ValueError, match=r'got \[\(\(1, 4, 4, 12\), torch.float32, .cpu.\), \(\(8,\)'):
        norm(torch.randn(1, 4, 4, C))


@pytest.mark.parametrize('name', ['weight', 'position', 'all'])
def test_parameters_on_another_device(name):
    norm = DTN(8, 2)
    if name == 'all':
        norm.to('meta')
    else:
        setattr(norm, name, torch.nn.Parameter(getattr(norm, name).to('meta')))
    with pytest.raises(ValueError, match='on the device of x'):
        norm(torch.randn(1, 4, 4, 8))


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


def script(path, text):
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache, and a stand-in for the compiler that copies the library and notes each call."""
    copy = f'while [ "$1" != -o ]; do shift; done; cp {dtn_cpu.build()} "$2"'
    note = f'[ "$1" = --version ] && exit; echo >> {tmp_path}/calls; sleep ${{DELAY:-0}}'
    monkeypatch.setenv('CXX', str(script(tmp_path / 'compiler', f'{note}; {copy}')))
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    dtn_cpu.library.cache_clear()
    yield tmp_path / 'cache' / 'kernels'
    dtn_cpu.library.cache_clear()


def compilations(cache):
    calls = cache.parents[1] / 'calls'
    return len(calls.read_text()) if calls.exists() else 0


def assert_eager(message=None):
    """The eager form runs: with one warning, or with none if it was asked for."""
    if message:
        with pytest.warns(UserWarning, match=message):
            assert dtn_cpu.library() is None
    args = arguments()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert dtn_cpu.library() is None
        assert torch.equal(dtn(*args), eager_dtn(*args))


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('CXX', '{}/broken', 'could not be compiled: .*internal compiler error'),
        ('CXX', '{}/odd', 'could not be compiled: .*odd failed'),
        ('CXX', 'g++ "-O2', 'could not be compiled: No closing quotation'),
        ('CXX', '{}/none', 'no C.. compiler was found'),
        ('TOKENNORM_CACHE', '{}/broken', 'could not be compiled: .*(Not a directory|File exists)'),
        ('TOKENNORM_CPU_KERNEL', '0', None),
    ],
)
def test_eager_form_runs_without_compiler_or_cache(cache, name, value, message, monkeypatch, tmp_path):
    script(tmp_path / 'broken', 'echo "internal compiler error" >&2; exit 1')
    script(tmp_path / 'odd', 'printf "\\377\\376 error" >&2; printf "\\377"; exit 1')  # not text
    monkeypatch.setenv(name, value.format(tmp_path))
    assert_eager(message)


@pytest.mark.parametrize('size', [0, 0.5])
def test_cut_off_library_is_compiled_again(cache, size):
    path = dtn_cpu.build()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(size * len(whole))])
    assert dtn_cpu.build().read_bytes() == whole
    assert compilations(cache) == 2
    assert dtn_cpu.library() is not None


@pytest.mark.skipif(not hasattr(os, 'getuid'), reason='no owners of files')
def test_cache_that_others_can_write(cache, tmp_path):
    cache.mkdir(parents=True)
    cache.chmod(0o1777)
    assert_eager('kernels belongs to another user, or others can write')
    cache.chmod(0o700)
    dtn_cpu.library.cache_clear()
    dtn_cpu.build().chmod(0o666)
    assert_eager(r'\.so belongs to another user, or others can write')
    library = next(cache.glob('*.so'))
    library.chmod(0o700)
    cache.parent.chmod(0o777)
    dtn_cpu.library.cache_clear()
    assert_eager('cache belongs to another user, or others can write')
    cache.parent.chmod(0o775)  # that of a umask of 002
    dtn_cpu.library.cache_clear()
    assert dtn_cpu.library() is not None
    library.unlink()
    (cache / 'lock').unlink()
    (cache / 'lock').symlink_to(tmp_path / 'calls')
    dtn_cpu.library.cache_clear()
    assert_eager('could not be compiled: .*lock')


def test_processes_that_start_together_compile_once(cache, monkeypatch):
    """And remove what a killed compilation left."""
    (cache / 'tmpxyz').mkdir(parents=True)
    cache.chmod(0o700)
    monkeypatch.setenv('DELAY', '0.3')
    with ProcessPoolExecutor(2, get_context('fork')) as pool:
        (path,) = {task.result(timeout=120) for task in [pool.submit(dtn_cpu.build) for _ in range(2)]}
    assert compilations(cache) == 1
    assert sorted(p.name for p in cache.iterdir()) == sorted(['lock', path.name, path.with_suffix('.sha256').name])


def test_library_name_depends_on_its_sources(cache, monkeypatch, tmp_path):
    before = dtn_cpu.build()
    assert dtn_cpu.build() == before
    source = tmp_path / 'source.cpp'
    source.write_text(dtn_cpu.SOURCE.read_text() + '\n')
    others = dict(SOURCE=source, HEADERS=[source], OPTIONS=['-O2'], _processor=lambda: 'another')
    for name, value in others.items():
        with monkeypatch.context() as changed:
            changed.setattr(dtn_cpu, name, value)
            assert dtn_cpu.build() != before, name
