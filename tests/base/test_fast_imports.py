"""What is imported late behaves as if it had been imported."""

import gc
import subprocess
import sys
from importlib import import_module

import pytest

from tokennorm.base import fast_imports as module
from tokennorm.base.fast_imports import fast_imports

USER = """
import waits
import waits.inner as inner
from waits import other
from waits.inner import Base, double

def uses():
    class Child(Base):
        pass
    child = Child()
    return double(4), child.value, isinstance(child, Base), isinstance(3, Base), inner.double(5), waits.NAMES['a']
"""


INNER = """
class Base:
    value = 7

def double(x):
    return 2 * x
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """The name of a module that imports a package that waits."""
    (tmp_path / 'waits').mkdir()
    (tmp_path / 'waits' / '__init__.py').write_text("NAMES = dict(a=1)\n__version__ = '1.2'")
    (tmp_path / 'waits' / 'inner.py').write_text(INNER)
    (tmp_path / 'waits' / 'other.py').write_text("NAME = 'other'")
    (tmp_path / 'of_names.py').write_text(USER)
    (tmp_path / 'of_waits.py').write_text(f'{USER}\nclass Child(Base): pass')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, 'DEFERRED', ('waits', 'not_installed'))
    monkeypatch.setattr(module, 'defers', True)
    yield 'of_names'
    for name in [name for name in sys.modules if name.split('.')[0] in ('waits', 'of_waits', 'of_names')]:
        del sys.modules[name]


def imported():
    return sorted(name for name in sys.modules if name.split('.')[0] == 'waits')


def check(names):
    assert names.uses() == (8, 7, True, False, 10, 1)
    assert names.other.NAME == 'other'
    assert type(sys.modules['waits.inner']) is type(sys)
    with pytest.raises(AttributeError, match="'waits' has no attribute 'missing'"):
        _ = names.waits.missing


def test_modules_are_imported_when_they_are_used(user):
    with fast_imports():
        names = import_module(user)
        assert type(sys.modules['waits.inner']) is not type(sys)
    assert imported() == []
    assert names.double(3) == 6
    assert imported() == ['waits', 'waits.inner']
    check(names)


def test_what_an_import_uses_ends_the_waiting(user):
    with fast_imports():
        names = import_module('of_waits')  # a class inherits from another one
        assert imported() == ['waits', 'waits.inner']
        assert names.Child.__mro__[1] is import_module('waits.inner').Base
        check(names)


def test_versions_are_known_while_modules_wait(user):
    with fast_imports():
        assert import_module('waits').__version__ == '1.2'


@pytest.mark.parametrize('name', ['not_installed', 'waits.not_there'])
def test_modules_that_do_not_exist_are_not_found(user, name):
    with fast_imports(), pytest.raises(ModuleNotFoundError, match=name):
        import_module(name)


@pytest.mark.parametrize(('defers', 'switch'), [(False, None), (True, '0')])
def test_a_library_and_a_user_can_import_everything(user, monkeypatch, defers, switch):
    monkeypatch.setattr(module, 'defers', defers)
    if switch:
        monkeypatch.setenv(module.SWITCH, switch)
    with fast_imports():
        check(import_module(user))
        assert sys.meta_path[0] is not module._FINDER


def test_garbage_is_collected_afterwards(user):
    with pytest.raises(ModuleNotFoundError, match='_False'), fast_imports():
        import_module(f'not_installed_{gc.isenabled()}')
    assert gc.isenabled()
    assert module._FINDER not in sys.meta_path


@pytest.mark.slow
def test_a_prediction_starts_without_what_few_functions_need(tmp_path):
    """In a process of its own: the names work afterwards."""
    code = """
import sys
from tokennorm.base import fast_imports
from tokennorm.base.environment import check_mmcv_ops, import_mmdet
fast_imports.defers = True
check_mmcv_ops()
import_mmdet()
import tokennorm.inference.torch_detector
from tokennorm.backbones import TimmBackbone
TimmBackbone('resnet10t', out_indices=(4,))
names = 'huggingface_hub imgaug matplotlib mmpretrain numba rich scipy sympy torch._dynamo torch.distributed.fsdp'
print([name for name in (*names.split(), 'torchvision.models') if name in sys.modules])
import torchvision, mmengine.runner, mmdet.models
assert torchvision.models.resnet18.__name__ == 'resnet18'
assert mmengine.runner.FlexibleRunner.from_cfg and mmdet.models.reid.BaseReID.__mro__
from mmdet.registry import MODELS
assert MODELS.get('BaseReID') and MODELS.get('mmpretrain.ConvNeXt').__module__ == 'mmpretrain.models.backbones.convnext'
import torch, torch.fx.experimental.symbolic_shapes, scipy.optimize, mmdet.utils.mot_error_visualize as drawing
from mmdet.models.task_modules.assigners import hungarian_assigner
assert hungarian_assigner.linear_sum_assignment([[0, 1], [1, 0]])[1].tolist() == [0, 1]
import matplotlib.pyplot
assert drawing.plt.figure is matplotlib.pyplot.figure
assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item() == 2
"""
    process = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, '[]\n'), process.stderr
