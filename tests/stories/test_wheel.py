"""The wheel has the configs, the metafiles and the tools, and its command works in a folder without the repository."""

import configparser
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tokennorm.ops.cpu.build import instruction_sets

ROOT = Path(__file__).resolve().parents[2]


def test_package_data_matches_the_files_of_the_repository():
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    package = ROOT / 'projects' / 'tokennorm'
    patterns = setup['options.package_data']['tokennorm'].split()
    found = {path.resolve() for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    wanted = {path for path in (ROOT / 'configs').rglob('*') if path.suffix in ('.py', '.yml')}
    tools = ('train.py', 'test.py', 'analysis.py', 'flops.py', 'dist_train.sh', 'dist_test.sh', 'slurm.sh')
    wanted |= {ROOT / 'tools' / name for name in tools}
    assert {path for path in found if path.parent.name == 'tools'} == {ROOT / 'tools' / name for name in tools}
    wanted |= {path for path in package.rglob('*') if path.suffix in ('.cpp', '.h', '.html', '.css', '.js')}
    assert {str(path) for path in wanted - found if '.mim' not in str(path)} == set()


def build_wheel(folder, **environment):
    """Builds the wheel from a copy of the files that it needs, and unpacks it; returns its path and its files."""
    source = folder / 'source'
    source.mkdir()
    for name in ('setup.cfg', 'setup.py', 'pyproject.toml', 'README.md', 'LICENSE', 'model-index.yml'):
        shutil.copy(ROOT / name, source)
    for name in ('projects', 'configs', 'tools'):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns('*.egg-info'))
    build = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--quiet']
    subprocess.run([*build, '--wheel-dir', folder, source], check=True, env=os.environ | environment)
    (wheel,) = folder.glob('tokennorm-*.whl')
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / 'unpacked')
        return wheel, file.namelist()


@pytest.mark.slow
@pytest.mark.parametrize('has_compiler', [True, False])
def test_kernel_of_a_wheel(has_compiler, tmp_path):
    """One library per instruction set, which needs no compiler; a wheel that was built without one has none."""
    if has_compiler and not (sys.platform == 'linux' and shutil.which('g++')):
        pytest.skip('no g++ on Linux')
    wheel, names = build_wheel(tmp_path, CXX='g++' if has_compiler else 'false')
    libraries = {name for name in names if name.endswith('.so')}
    assert libraries == {f'tokennorm/ops/cpu/dtn-{name}.so' for name in instruction_sets() if has_compiler}
    platform_tag = f'linux_{platform.machine()}' if has_compiler else 'any'
    assert wheel.name.endswith(f'-py3-none-{platform_tag}.whl')
    code = """
import torch
from tokennorm.norms import DTN
from tokennorm.ops.cpu import kernel
for _ in range(2):
    DTN(8, 2)(torch.ones(1, 2, 2, 8))
print(kernel.library())
"""
    paths = dict(PYTHONPATH=str(tmp_path / 'unpacked'), TOKENNORM_CACHE=str(tmp_path / 'cache'), CXX='/none')
    done = subprocess.run([sys.executable, '-c', code], env=os.environ | paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ('unpacked/tokennorm/ops/cpu/dtn-' in done.stdout) == has_compiler
    assert done.stderr.count('DTN runs in its slower eager form') == (0 if has_compiler else 1)
    assert not (tmp_path / 'cache').exists()


@pytest.mark.slow
def test_the_wheel_alone(tmp_path):
    _, names = build_wheel(tmp_path, CXX='false')
    assert 'tokennorm/.mim/model-index.yml' in names
    assert 'tokennorm/.mim/configs/_base_/models/retinanet_fpn.py' in names
    tools = sorted(name for name in names if re.fullmatch(r'tokennorm/\.mim/tools/.*\.py', name))
    assert len(tools) == 4
    (tmp_path / 'empty').mkdir()

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path / 'empty',
            env=os.environ | {'PYTHONPATH': str(tmp_path / 'unpacked')},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for tool in tools:
        run(str(tmp_path / 'unpacked' / tool), '--help')
    assert 'pvt/retinanet_pvt-t_fpn_1x_coco' in run('-m', 'tokennorm', 'configs', 'pvt-t')
    code = """
from mmengine.config import Config
from mmengine.hub import get_config
import tokennorm
open('mine.py', 'w').write("_base_ = 'tokennorm::pvt/retinanet_pvt-t_fpn_1x_coco.py'")
assert Config.fromfile('mine.py').model.backbone.type == 'tokennorm.PVT'
assert get_config('tokennorm::pvt/retinanet_pvt-t_fpn_1x_coco.py').model.backbone.arch == 'tiny'
assert tokennorm.__file__.startswith({folder!r})
"""
    run('-c', code.format(folder=str(tmp_path)))
