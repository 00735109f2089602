"""Runs that former versions left: resumed by the same command, tested, exported and compared with this version."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

from tests.helpers.commands import tool
from tokennorm.checkpoints import Checkpoint

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = {'0.2.0': '5a9d1b91', '1.0.0': '74f6109e', '1.1.0': '89e6d572', '1.2.0': '8587c486'}  # no tags: commits
CHOSEN = {'0.2.0': ['retinanet_pvt-mini-dtn-dpn_fpn_shapes']}  # which chose no config
OPTIONS = ['--workers', '0', '--image-size', '64', '--work-dir', 'run']


def source_of(version, folder):
    """Extracts a version of the package, or skips where the repository has no history."""
    paths = ['projects/tokennorm', 'configs', 'tools', 'model-index.yml']
    done = subprocess.run(['git', 'archive', VERSIONS[version], *paths], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f'the history of the repository lacks {version}')
    folder.mkdir()
    subprocess.run(['tar', '-x'], cwd=folder, input=done.stdout, check=True)
    return folder / 'projects'


@pytest.mark.slow
@pytest.mark.parametrize('version', VERSIONS)
def test_run_of_a_former_version_continues(version, boxes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [*CHOSEN.get(version, ['--model', 'mini']), '--data', boxes, *OPTIONS]
    env = os.environ | dict(PYTHONPATH=str(source_of(version, tmp_path / 'source')), OMP_NUM_THREADS='1')
    command = [sys.executable, '-m', 'tokennorm', 'train', *words, '--epochs', '1']
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    run, copy = tmp_path / 'run', tmp_path / 'copy'
    (config,) = run.glob('*.py')
    before = Config.fromfile(config).model
    shutil.copytree(run, copy)

    tool('train')([*words, '--epochs', '2', '--resume'])
    printed = capsys.readouterr().out
    assert 'the model is that of the run to resume' in printed  # defaults differ: GroupNorm, the calculator of IoUs
    assert Checkpoint.read(run / 'epoch_2.pth').meta['epoch'] == 2
    assert Config.fromfile(config).model.bbox_head.get('norm_cfg') == before.bbox_head.get('norm_cfg')
    assert not Path((run / 'last_checkpoint').read_text()).is_absolute()

    files = {path: path.stat().st_mtime_ns for path in run.rglob('*')}
    copied = copy / config.name
    tool('train')([str(copied), '--workers', '0', '--resume', '--cfg-options', 'train_cfg.max_epochs=2'])
    assert (copy / 'epoch_2.pth').is_file()
    assert files == {path: path.stat().st_mtime_ns for path in run.rglob('*')}  # the original stays as it is

    tool('test')([str(run)])
    tool('export')([str(run), str(tmp_path / 'run.onnx'), '--allow', 'padded-norms'])
    tool('compare')([str(run), str(copy), '--out', str(tmp_path / 'compare.html')])
    assert (tmp_path / 'run.onnx').is_file()
    assert 'run' in (tmp_path / 'compare.html').read_text(encoding='utf-8')
