"""The main job as a user runs it: minutes on two cores."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDE = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition('.')[0] in {absent} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
ABSENT = 'imagecorruptions lightly llvmlite mmseg mypy numba onnx onnxruntime onnxscript openvino pytest triton'


@pytest.fixture
def demo_packages(tmp_path):
    """Variables of a process that lacks what `make demo` does not install."""
    (tmp_path / 'site').mkdir()
    (tmp_path / 'site' / 'sitecustomize.py').write_text(HIDE.replace('{absent}', str(set(ABSENT.split()))))
    return {**os.environ, 'PYTHONPATH': f'{tmp_path / "site"}{os.pathsep}{ROOT / "projects"}'}


@pytest.mark.slow
def test_check_env_needs_the_packages_of_the_demo_only(demo_packages):
    for code in ('import openvino', 'import triton'):
        assert subprocess.run([sys.executable, '-c', code], env=demo_packages, capture_output=True).returncode == 1
    modules = 'tokennorm.engine.training, tokennorm.inference.prediction, tokennorm.report'  # of train and predict
    for call in (['-m', 'tokennorm.cli.check_env'], ['-c', f'import {modules}']):
        run = subprocess.run([sys.executable, *call], env=demo_packages, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize('arguments', [[], ['--control']], ids=['dtn-dpn', 'control'])
def test_demo_reaches_its_ap_and_leaves_pictures(arguments, tmp_path, demo_packages):
    command = [sys.executable, ROOT / 'tools' / 'demo.py', *arguments]
    run = subprocess.run(command, cwd=tmp_path, env=demo_packages, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    work_dir = tmp_path / 'work_dirs' / ('demo-control' if arguments else 'demo')
    ap, ap50 = map(float, re.search(r'^AP ([\d.]+), AP50 ([\d.]+) on', run.stdout, re.MULTILINE).groups())
    assert ap >= 40
    assert ap50 >= 70
    assert re.search(r'20 of \d+ iterations took \d+ s: about \d+ min to go', run.stdout)
    for name in ('report.html', 'predictions.png'):
        assert (work_dir / name).is_file()
        assert f'work_dirs/{work_dir.name}/{name}' in run.stdout
