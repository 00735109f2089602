"""tokennorm.environment: each fault is planted, and the message and the command that fixes it are checked."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokennorm import environment as check_env


def loader(**faults):
    """An import_module for which the named modules raise and all others are there."""

    def load(name):
        if name.replace('.', '_') in faults:
            raise faults[name.replace('.', '_')]

    return load


def installed(**versions):
    return lambda name: versions.get(name.replace('-', '_'), '')


def test_ops_are_there():
    assert check_env.check_mmcv_ops(loader()) == check_env.Result("mmcv's compiled ops")


def test_mmcv_without_its_ops():
    fault = ModuleNotFoundError("No module named 'mmcv._ext'", name='mmcv._ext')
    result = check_env.check_mmcv_ops(loader(mmcv__ext=fault))
    assert 'without them' in result.problem
    assert 'cache remove onedl_mmcv; ' in result.fix
    assert '--no-build-isolation' in result.fix


@pytest.mark.parametrize(
    'message',
    ['_ext.so: undefined symbol: _ZN3c105ErrorC2E', 'libcudart.so.12: cannot open shared object file', 'libc10.so: no'],
)
def test_ops_of_another_torch(message):
    result = check_env.check_mmcv_ops(loader(mmcv__ext=ImportError(message)))
    assert 'another torch' in result.problem
    assert message in result.problem
    assert '--force-reinstall' in result.fix


def test_ops_that_another_package_hinders_are_not_compiled_anew():
    fault = ImportError('libGL.so.1: cannot open shared object file')
    result = check_env.check_mmcv_ops(loader(mmcv__ext=fault))
    assert 'cannot be tested: libGL' in result.problem
    assert result.fix == check_env.MAKE_ENV


def test_mmcv_is_not_installed():
    fault = ModuleNotFoundError("No module named 'mmcv'", name='mmcv')
    assert check_env.check_mmcv_ops(loader(mmcv__ext=fault)).fix == check_env.MAKE_ENV


def test_a_kernel_that_cannot_be_compiled_is_no_failure():
    def build():
        raise RuntimeError('no C++ compiler was found (c++)')

    result = check_env.check_dtn_kernel(build)
    assert not result.problem
    assert 'no C++ compiler was found' in str(result)
    assert str(check_env.check_dtn_kernel(lambda: None)) == "ok    DTN's CPU kernel"


def test_require_mmcv_ops_names_the_fix(monkeypatch):
    monkeypatch.setattr(check_env, 'check_mmcv_ops', lambda: check_env.Result('ops', 'are absent', 'build them'))
    with pytest.raises(RuntimeError, match='ops: are absent\nFix it with\n  build them'):
        check_env.require_mmcv_ops()
    monkeypatch.setattr(check_env, 'check_mmcv_ops', lambda: check_env.Result('ops'))
    check_env.require_mmcv_ops()


def test_opencv_without_libgl():
    result = check_env.check_opencv(loader(cv2=ImportError('libGL.so.1: cannot open shared object file')))
    assert 'libGL' in result.problem
    assert 'opencv-python-headless' in result.fix
    assert not check_env.check_opencv(loader()).problem


@pytest.mark.parametrize(('version', 'bad'), [('', False), ('65.5.0', False), ('81.0.0', False), ('82.0', True)])
def test_setuptools(version, bad):
    result = check_env.check_setuptools(version)
    assert bool(result.problem) == bad
    assert result.fix.endswith("install 'setuptools<82'")


def test_mmdet_installed_twice():
    result = check_env.check_duplicates(installed(mmdet='3.3.0', onedl_mmdetection='3.5.1', onedl_mmcv='2.3.6'))
    assert 'mmdet and onedl-mmdetection' in result.problem
    assert 'uninstall -y mmdet && ' in result.fix
    assert 'install --force-reinstall --no-deps onedl-mmdetection' in result.fix


def test_only_forks_or_only_originals_is_not_twice():
    assert not check_env.check_duplicates(installed(onedl_mmdetection='3.5.1', onedl_mmcv='2.3.6')).problem
    assert not check_env.check_duplicates(installed(mmdet='3.3.0', mmcv='2.1.0')).problem


def test_missing_packages_are_named_by_distribution():
    result = check_env.check_packages(lambda name: None if name in ('mmdet', 'timm') else object())
    assert result.problem == 'not installed: onedl-mmdetection, timm'
    assert not check_env.check_packages(lambda name: object()).problem


def test_versions_that_do_not_accept_each_other():
    result = check_env.check_imports(loader(mmdet=AssertionError('MMCV==2.3.6 is used but incompatible')))
    assert result.problem == 'import mmdet fails: AssertionError: MMCV==2.3.6 is used but incompatible'


class FakeTorch:
    """As much of torch as check_gpu looks at; tensors are numbers that raise where the fault says so."""

    __version__ = '2.11.0'

    def __init__(self, available=True, fault=None):
        self.fault = fault
        self.cuda = SimpleNamespace(
            is_available=lambda: available,
            get_device_capability=lambda: (9, 0),
            get_device_name=lambda: 'GPU X',
            get_arch_list=lambda: ['sm_75', 'sm_80'],
            synchronize=lambda: None,
        )

    def ones(self, *shape, device):
        if self.fault:
            raise self.fault
        return FakeTensor()

    def arange(self, end, device):
        return FakeTensor()


class FakeTensor:
    def __mul__(self, other):
        return self

    def __getitem__(self, index):
        return self


def failing_nms(message):
    def nms(boxes, scores, threshold):
        raise RuntimeError(message)

    return nms


def test_gpu_with_code_for_it():
    assert check_env.check_gpu(FakeTorch(), lambda *arguments: None) == check_env.Result('GPU GPU X, sm_90')


def test_ops_compiled_for_another_gpu():
    nms = failing_nms('CUDA error: no kernel image is available for execution on the device\nmore')
    result = check_env.check_gpu(FakeTorch(), nms)
    assert result.problem.startswith("mmcv's ops were not compiled for sm_90 (CUDA error: no kernel image")
    assert 'FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=9.0 ' in result.fix


def test_ops_compiled_for_the_cpu_only():
    result = check_env.check_gpu(FakeTorch(), failing_nms('nms_impl: implementation for device cuda:0 not found.'))
    assert "mmcv's ops were not compiled for CUDA" in result.problem


def test_torch_without_code_for_the_gpu():
    fault = RuntimeError('CUDA error: no kernel image is available')
    result = check_env.check_gpu(FakeTorch(fault=fault), None)
    assert 'torch 2.11.0 has code for sm_75 sm_80 only' in result.problem
    assert 'TORCH_INDEX=' in result.fix


@pytest.mark.parametrize('driver', [True, False])
def test_gpu_that_torch_cannot_use(driver, monkeypatch):
    monkeypatch.setattr(check_env.shutil, 'which', lambda name: '/usr/bin/nvidia-smi' if driver else None)
    result = check_env.check_gpu(FakeTorch(available=False), None)
    assert ('driver is too old' in result.problem) == driver


@pytest.mark.parametrize('fault', ['', 'planted'])
def test_main_prints_and_counts(fault, monkeypatch, capsys):
    monkeypatch.setattr(check_env, 'run_checks', lambda: [check_env.Result('a'), check_env.Result('b', fault, 'fix b')])
    monkeypatch.setattr(check_env, 'versions', lambda: {'python': '3'})
    assert check_env.main() == bool(fault)
    assert ('FAIL  b: planted\n      fix b' if fault else 'ok    b') in capsys.readouterr().out


def test_runs_without_any_package():
    """-S hides site-packages, as in a fresh environment."""
    projects = Path(check_env.__file__).parents[2]
    command = [sys.executable, '-S', '-m', 'tokennorm.environment']
    environment = {**os.environ, 'PYTHONPATH': str(projects)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 1
    assert 'not installed: torch, torchvision, onedl-mmengine' in process.stdout
    assert process.stderr == ''
