"""Where DTN's CPU kernel comes from: an installed wheel, the cache, the compiler. Without one the eager form runs."""

import ctypes
import os
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from tests.ops.test_dtn_borders import arguments
from tokennorm.ops.cpu import build, kernel
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn

pytestmark = pytest.mark.compiler

ROOT = Path(__file__).resolve().parents[3]


def script(path, text):
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache, and a stand-in for the compiler that copies the library and notes each call."""
    copy = f'while [ "$1" != -o ]; do shift; done; cp {kernel.library_path()} "$2"'
    note = f'[ "$1" = --version ] && exit; echo >> {tmp_path}/calls; sleep ${{DELAY:-0}}'
    monkeypatch.setenv('CXX', str(script(tmp_path / 'compiler', f'{note}; {copy}')))
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    kernel.library.cache_clear()
    yield tmp_path / 'cache' / 'kernels'
    kernel.library.cache_clear()


def compilations(cache):
    calls = cache.parents[1] / 'calls'
    return len(calls.read_text()) if calls.exists() else 0


def assert_eager(message=None):
    """The eager form runs: with one warning, or with none if it was asked for."""
    if message:
        with pytest.warns(UserWarning, match=message):
            assert kernel.library() is None
    args = arguments()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert kernel.library() is None
        assert torch.equal(dtn(*args), eager_dtn(*args))


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('CXX', '{}/broken', 'internal compiler error'),
        ('CXX', '{}/odd', 'odd failed'),
        ('CXX', 'g++ "-O2', 'is not a command: No closing quotation'),
        ('CXX', '{}/none', r'no C\+\+ compiler was found .* Install g\+\+'),
        ('TOKENNORM_CACHE', '{}/broken', 'Not a directory|File exists'),
        ('TOKENNORM_CPU_KERNEL', '0', None),
    ],
)
def test_eager_form_runs_without_compiler_or_cache(cache, name, value, message, monkeypatch, tmp_path):
    script(tmp_path / 'broken', 'echo "internal compiler error" >&2; exit 1')
    script(tmp_path / 'odd', 'printf "\\377\\376 error" >&2; printf "\\377"; exit 1')  # not text
    monkeypatch.setenv(name, value.format(tmp_path))
    assert_eager(message)


def test_processes_that_start_together_compile_once(cache, monkeypatch):
    monkeypatch.setenv('DELAY', '0.3')
    with ProcessPoolExecutor(2, get_context('fork')) as pool:
        (path,) = {task.result(timeout=120) for task in [pool.submit(kernel.library_path) for _ in range(2)]}
    assert compilations(cache) == 1
    assert sorted(p.name for p in cache.iterdir()) == [path.name, 'lock']
    assert kernel.library() is not None


def test_library_name_depends_on_sources_options_and_processor(cache, monkeypatch, tmp_path):
    before = kernel.library_path()
    assert kernel.library_path() == before
    source = tmp_path / 'source.cpp'
    source.write_text(build.SOURCE.read_text() + '\n')
    flags = dict.fromkeys(build.instruction_sets(), ('-mother',))
    others = dict(SOURCE=source, FOLDER=tmp_path, OPTIONS=['-O2'], instruction_sets=lambda: flags)
    for name, value in others.items():
        with monkeypatch.context() as changed:
            changed.setattr(build, name, value)
            assert kernel.library_path() != before, name


@pytest.mark.parametrize(
    ('capability', 'files', 'chosen'),
    [
        ('AVX512', ('x86-64', 'x86-64-v3', 'x86-64-v4'), 'x86-64-v4'),
        ('AVX512', ('x86-64', 'x86-64-v3'), 'x86-64-v3'),  # of a compiler without AVX-512
        ('AVX2', ('x86-64', 'x86-64-v3', 'x86-64-v4'), 'x86-64-v3'),
        ('DEFAULT', ('x86-64', 'x86-64-v3', 'x86-64-v4'), 'x86-64'),
        ('AVX2', ('x86-64-v4',), None),
    ],
)
def test_installed_library_for_the_processor(capability, files, chosen, monkeypatch, tmp_path):
    for name in files:
        build.built_library(name, tmp_path).touch()
    monkeypatch.setattr(build, 'instruction_sets', lambda: build.X86_64)
    monkeypatch.setattr(build, 'built_library', lambda name, get=build.built_library: get(name, tmp_path))
    monkeypatch.setattr(build, 'cached_library', lambda name: f'compiled for {name}')
    monkeypatch.setattr(torch.backends.cpu, 'get_cpu_capability', lambda: capability)
    expected = tmp_path / f'dtn-{chosen}.so' if chosen else 'compiled for x86-64-v3'
    assert kernel.library_path() == expected


def test_library_with_other_arguments_is_refused(cache, monkeypatch):
    class Longer(ctypes.Structure):
        _fields_ = (*kernel.Call._fields_, ('more', ctypes.c_void_p))

    monkeypatch.setattr(kernel, 'Call', Longer)
    size = ctypes.sizeof(Longer)
    assert_eager(f'takes {size - 8} bytes of arguments, expected {size}')


def test_file_that_is_not_the_library(cache):
    path = kernel.library_path()
    path.write_text('not a library')
    assert_eager('could not be compiled or loaded: .*dtn-')


@pytest.mark.slow
@pytest.mark.parametrize('capability', ['avx2', 'default'])
def test_random_cases_on_older_processors(capability):
    """Compiled for fewer instructions than this processor may have."""
    environment = os.environ | dict(ATEN_CPU_CAPABILITY=capability)
    command = [sys.executable, '-m', 'tests.fuzz_dtn', '--cases', '100']
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
