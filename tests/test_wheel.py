"""The wheel has the configs, the metafiles and the tools, and its command works in a folder without the repository."""

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_package_data_matches_the_files_of_the_repository():
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    package = ROOT / 'projects' / 'tokennorm'
    patterns = setup['options.package_data']['tokennorm'].split()
    found = {path.resolve() for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    wanted = {path for path in (ROOT / 'configs').rglob('*') if path.suffix in ('.py', '.yml')}
    wanted |= {path for path in (ROOT / 'tools').iterdir() if path.suffix in ('.py', '.sh')}
    wanted |= {path for path in package.rglob('*') if path.suffix in ('.cpp', '.html', '.css', '.js')}
    assert {str(path) for path in wanted - found if '.mim' not in str(path)} == set()


@pytest.mark.slow
def test_the_wheel_alone(tmp_path):
    source = tmp_path / 'source'
    source.mkdir()
    for name in ('setup.cfg', 'pyproject.toml', 'README.md', 'LICENSE', 'model-index.yml'):
        shutil.copy(ROOT / name, source)
    for name in ('projects', 'configs', 'tools'):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns('*.egg-info'))
    build = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--quiet']
    subprocess.run([*build, '--wheel-dir', tmp_path, source], check=True)
    (wheel,) = tmp_path.glob('tokennorm-*.whl')
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / 'unpacked')
        names = file.namelist()
    assert 'tokennorm/.mim/model-index.yml' in names
    assert 'tokennorm/.mim/configs/_base_/models/retinanet_fpn.py' in names
    assert 'tokennorm/.mim/tools/train.py' in names
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
