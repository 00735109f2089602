"""tokennorm.cli.check_env: each fault is planted, and the message and the command that fixes it are checked."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokennorm import environment
from tokennorm.cli.check_env import check_gpu
from tokennorm.environment import Fault


@pytest.fixture
def imports(monkeypatch):
    """Faults of imports by name; mmcv and its ops are there without one."""
    faults = {}

    def load(name):
        if name in faults:
            raise faults[name]
        return SimpleNamespace()

    monkeypatch.setattr(importlib, 'import_module', load)
    return faults


def test_mmcv_without_its_ops(imports):
    environment.check_mmcv_ops()
    imports['mmcv._ext'] = ModuleNotFoundError("No module named 'mmcv._ext'", name='mmcv._ext')
    message = (
        r'mmcv was installed without its compiled ops .*\nFix it with\n  .*cache remove onedl_mmcv; .*--no-build-iso'
    )
    with pytest.raises(Fault, match=message):
        environment.check_mmcv_ops()


def test_ops_of_another_torch(imports):
    imports['mmcv._ext'] = ImportError('_ext.so: undefined symbol: _ZN3c105ErrorC2E')
    with pytest.raises(Fault, match=r'another torch .*\n.*\n.*--force-reinstall'):
        environment.check_mmcv_ops()


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
    with pytest.raises(Fault, match=r'^no kernel image is available\n.*\n.*FORCE_CUDA=1'):
        check_gpu()
    monkeypatch.setattr(torch, 'ones', fail)
    with pytest.raises(Fault, match='TORCH_INDEX='):
        check_gpu()
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)  # an old driver, or torch for CPUs
    monkeypatch.setattr('shutil.which', lambda name: '/usr/bin/nvidia-smi')
    with pytest.raises(Fault):
        check_gpu()
    monkeypatch.setattr('shutil.which', lambda name: None)
    assert check_gpu().startswith('there is none')


def test_runs_without_any_package():
    """-S hides site-packages, as in a fresh environment."""
    command = [sys.executable, '-S', '-m', 'tokennorm.cli.check_env']
    variables = {**os.environ, 'PYTHONPATH': str(Path(environment.__file__).parents[1])}
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.returncode == 1, process.stderr
    assert 'FAIL  packages: not installed: torch, ' in process.stdout
