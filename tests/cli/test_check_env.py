"""tokennorm.cli.check_env: each fault is planted, and the message and the command that fixes it are checked."""

import importlib
from types import SimpleNamespace

import pytest

from tokennorm.base import environment
from tokennorm.base.environment import Fault
from tokennorm.cli import check_env
from tokennorm.cli.check_env import check_gpu


@pytest.fixture
def imports(monkeypatch):
    """Faults of imports by name; every other import succeeds, and mmcv's operators are compiled."""
    faults = {}

    def load(name):
        if isinstance(faults.get(name), Exception):
            raise faults[name]
        return faults.get(name) or SimpleNamespace(__version__='1.0', __file__='_ext.cpython-311-x86_64-linux-gnu.so')

    monkeypatch.setattr(importlib, 'import_module', load)
    return faults


@pytest.fixture
def installed(monkeypatch):
    """Versions by distribution."""
    versions = {}
    monkeypatch.setattr(environment, 'version_of', lambda name: versions.get(name, ''))
    monkeypatch.setattr(check_env, 'version_of', lambda name: versions.get(name, ''))
    return versions


def test_mmcv_without_operators(imports):
    assert environment.check_mmcv_ops() == 'compiled in mmcv'
    imports['mmcv._ext'] = ModuleNotFoundError("No module named 'mmcv._ext'", name='mmcv._ext')
    with pytest.raises(Fault, match=r'mmcv has no operators: .*\nFix it with\n  .* install ./projects/mmcv_ops '):
        environment.check_mmcv_ops()


def test_operators_of_another_torch(imports, installed):
    installed |= {'torch': '2.11.0', 'onedl-mmcv': '2.3.6'}
    imports['mmcv._ext'] = ImportError('_ext.so: undefined symbol: _ZN3c105ErrorC2E', name='mmcv._ext')
    with pytest.raises(Fault, match=r'do not fit torch 2.11.0: .*\n.*\n.*--no-cache-dir onedl-mmcv==2.3.6 '):
        environment.check_mmcv_ops()


def test_originals_and_forks_in_the_same_folders(imports, installed):
    forks = {name: '1.0' for name in environment.FORKS.values()}
    installed |= forks
    assert check_env.check_packages() == 'forks of OpenMMLab (onedl-...)'
    installed['mmcv-lite'] = '2.1.0'
    message = r'same folders: onedl-mmengine, onedl-mmcv, mmcv-lite, .*\n.*\n.*uninstall -y .* --no-deps onedl-mmengine'
    with pytest.raises(Fault, match=message):
        check_env.check_packages()
    installed |= {'mmengine': '0.10.7', 'mmdet': '3.3.0', 'mmpretrain': '1.2.0'}
    del installed['onedl-mmengine']
    with pytest.raises(Fault, match=r'--no-deps mmengine==0.10.7 mmcv-lite==2.1.0 mmdet==3.3.0 mmpretrain==1.2.0$'):
        check_env.check_packages()  # the family that is complete stays
    for name in [name for name in forks if name in installed]:
        del installed[name]
    assert check_env.check_packages() == 'originals of OpenMMLab'
    imports['mmdet'] = AssertionError('MMCV==2.2.0 is used but incompatible')
    with pytest.raises(Fault, match=r'incompatible\nFix it with\n  .* install ./projects/mmcv_ops ".\[openmmlab,'):
        check_env.check_imports()
    installed['mmcv'] = '2.1.0'
    with pytest.raises(
        Fault, match=r'same folders: mmengine, mmcv, mmcv-lite, .*\n.*\n.* mmengine==0.10.7 mmcv-lite==2.1.0 '
    ):
        check_env.check_packages()


def test_opencv_without_libgl(imports, installed):
    installed |= {'opencv-python': '4.14.0.94', 'opencv-python-headless': '4.14.0.94'}
    imports['cv2'] = ImportError('libGL.so.1: cannot open shared object file')
    with pytest.raises(Fault, match=r'libGL.*\n.*\n.*--no-deps opencv-contrib-python-headless==4.14.0.94'):
        check_env.check_imports()
    imports['cv2'] = SimpleNamespace(__path__=['cv2'])  # what remains when pip removes one of several OpenCVs
    with pytest.raises(Fault, match=r'import cv2 .* no attribute .__version__.\n.*\n.*--no-deps opencv-contrib-'):
        check_env.check_imports()


def test_gpu_without_code_in_torch_or_mmcv(monkeypatch):
    ops, torch = pytest.importorskip('mmcv.ops'), pytest.importorskip('torch')
    ones = torch.ones
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda: 'H100')
    monkeypatch.setattr(torch, 'ones', lambda *size, device: ones(*size))
    assert check_gpu().startswith('H100, CUDA ')

    def fail(*args, **kwargs):
        raise RuntimeError('no kernel image is available\nmore')

    monkeypatch.setattr(ops, 'nms', fail)
    with pytest.raises(Fault, match=r'^no kernel image is available\n.*\n.*TORCH_INDEX='):
        check_gpu()
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)  # an old driver, or torch for CPUs
    monkeypatch.setattr(torch, 'ones', fail)
    monkeypatch.setattr('shutil.which', lambda name: '/usr/bin/nvidia-smi')
    with pytest.raises(Fault):
        check_gpu()
    monkeypatch.setattr('shutil.which', lambda name: None)
    assert check_gpu().startswith('not found')
