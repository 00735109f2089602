"""mmcv's Python code on either kind of operators, in one process."""

import contextlib
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # these files, not an installed copy of them

import mmcv.ops
import pytest
from mmcv_ops import ext as these


def compiled_ext():
    """Returns mmcv's compiled module, or None where mmcv has none."""
    ext = import_module('mmcv._ext')
    return None if hasattr(ext, 'MMCV_OPS') else ext


@contextlib.contextmanager
def operators(ext):
    """Lets all modules of `mmcv.ops` call the functions of `ext`."""
    modules = [m for name, m in sys.modules.items() if name.startswith('mmcv.ops.') and hasattr(m, 'ext_module')]
    before = [m.ext_module for m in modules]
    try:
        for m in modules:
            m.ext_module = ext
        yield mmcv.ops
    finally:
        for m, old in zip(modules, before, strict=True):
            m.ext_module = old


@pytest.fixture
def ops():
    """`mmcv.ops` on the operators of this distribution."""
    with operators(these) as module:
        yield module


@pytest.fixture
def compiled():
    """A context manager in which `mmcv.ops` uses the compiled operators. Skips the test where there are none."""
    ext = compiled_ext()
    if ext is None:
        pytest.skip('this mmcv has no compiled operators')
    return lambda: operators(ext)
