"""Packages whose import waits behave as if they had been imported."""

import subprocess
import sys

import pytest
import torch

from tokennorm import deferring
from tokennorm.deferring import deferred_imports

USER = """
import waits
import waits.inner as inner
from waits import other
from waits.inner import Base, double

class Derived:
    pass

def uses():
    class Child(Base):
        pass
    return double(4), Child().value, isinstance(Child(), Base), other.NAME, inner.double(5), waits.NAMES['a']
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A module that imports a package that waits."""
    (tmp_path / 'waits').mkdir()
    (tmp_path / 'waits' / '__init__.py').write_text("NAMES = dict(a=1)\n__version__ = '1.2'")
    (tmp_path / 'waits' / 'inner.py').write_text('def double(x):\n    return 2 * x\n\nclass Base:\n    value = 7')
    (tmp_path / 'waits' / 'other.py').write_text("NAME = 'other'")
    (tmp_path / 'of_waits.py').write_text(USER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(deferring, 'PACKAGES', ('waits', 'not_installed'))
    yield lambda: __import__('of_waits')
    for name in [name for name in sys.modules if name.split('.')[0] in ('waits', 'of_waits')]:
        del sys.modules[name]


def waiting():
    return [name for name in sys.modules if name.split('.')[0] == 'waits']


def test_a_package_is_imported_when_it_is_used(user):
    with deferred_imports():
        module = user()
    assert waiting() == []
    assert module.uses() == (8, 7, True, 'other', 10, 1)
    assert type(sys.modules['waits.inner']) is type(sys)
    with pytest.raises(AttributeError, match="'waits' has no attribute 'missing'"):
        _ = module.waits.missing


def test_what_is_used_while_others_wait(user):
    with deferred_imports():
        module = user()
        assert module.waits.__version__ == '1.2'
        assert module.uses() == (8, 7, True, 'other', 10, 1)
        import waits.other

        assert waits.other.NAME == 'other'
    assert len(waiting()) == 3


def test_a_package_that_is_not_installed_is_not_found(user):
    with deferred_imports(), pytest.raises(ModuleNotFoundError):
        __import__('not_installed')


def test_without_the_compiler_functions_are_disabled_when_they_are_compiled():
    calls = []

    @deferring._disable
    def add(x):
        calls.append(torch.compiler.is_compiling())
        return x + 1

    @deferring._disable(recursive=False)
    def times(x):
        return x * 2

    def both(x):
        return times(add(x * 3))

    x = torch.ones(2)
    assert add(x).tolist() == [2, 2]
    assert torch.compile(both, backend='eager')(x).tolist() == [8, 8]
    assert calls == [False, False]


def test_mmdet_without_what_few_functions_need():
    """In a process of its own: the names work afterwards."""
    code = """
import sys
from tokennorm.environment import check_mmcv_ops, import_mmdet
check_mmcv_ops()
import_mmdet()
print([name for name in ('imgaug', 'matplotlib', 'scipy', 'numba', 'torch._dynamo') if name in sys.modules])
import torch, scipy.optimize, mmdet.utils.mot_error_visualize as drawing
from mmdet.models.task_modules.assigners import hungarian_assigner
from mmdet.registry import TRANSFORMS
assert hungarian_assigner.linear_sum_assignment([[0, 1], [1, 0]])[1].tolist() == [0, 1]
import matplotlib.pyplot
assert drawing.plt.figure is matplotlib.pyplot.figure
assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item() == 2
"""
    process = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, '[]\n'), process.stderr
