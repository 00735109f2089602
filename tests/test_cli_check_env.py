"""tokennorm.cli.check_env: each fault is planted, and the message and the command that fixes it are checked."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokennorm import environment
from tokennorm.cli import check_env
from tokennorm.environment import Check


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


@pytest.fixture
def installed(monkeypatch):
    """Versions of distributions by name."""
    versions = {}
    for module in (environment, check_env):
        monkeypatch.setattr(module, 'version_of', lambda name: versions.get(name, ''))
    return versions


def test_mmcv_without_its_ops(imports):
    assert environment.check_mmcv_ops() == Check("mmcv's compiled ops")
    imports['mmcv._ext'] = ModuleNotFoundError("No module named 'mmcv._ext'", name='mmcv._ext')
    check = environment.check_mmcv_ops()
    assert 'without them' in check.problem
    assert 'cache remove onedl_mmcv; ' in check.fix
    assert '--no-build-isolation' in check.fix
    with pytest.raises(RuntimeError, match=r"mmcv's compiled ops: mmcv was installed without them.*\nFix it with\n"):
        environment.require_mmcv_ops()


@pytest.mark.parametrize(
    'message',
    ['_ext.so: undefined symbol: _ZN3c105ErrorC2E', 'libcudart.so.12: cannot open shared object file', 'libc10.so: no'],
)
def test_ops_of_another_torch(imports, message):
    imports['mmcv._ext'] = ImportError(message)
    check = environment.check_mmcv_ops()
    assert 'another torch' in check.problem
    assert message in check.problem
    assert '--force-reinstall' in check.fix


def test_mmdet_installed_twice(installed, monkeypatch):
    monkeypatch.setattr(check_env, 'find_spec', lambda name: object())
    installed.update({'onedl-mmdetection': '3.5.1', 'onedl-mmcv': '2.3.6'})
    assert not check_env.check_packages().problem
    installed['mmdet'] = '3.3.0'
    check = check_env.check_packages()
    assert check.problem == 'installed twice, as original and as fork: mmdet'
    assert 'uninstall -y mmdet && ' in check.fix
    assert 'onedl-mmdetection==3.5.1' in check.fix


def test_runs_without_any_package():
    """-S hides site-packages, as in a fresh environment."""
    command = [sys.executable, '-S', '-m', 'tokennorm.cli.check_env']
    variables = {**os.environ, 'PYTHONPATH': str(Path(environment.__file__).parents[1])}
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.returncode == 1, process.stderr
    assert 'FAIL  packages: not installed: torch, ' in process.stdout
