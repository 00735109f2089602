"""SIGKILL of one of two ranks: all restart by themselves, and the run ends with the weights of an undisturbed one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from experiments.study.shape_classes import make_shape_classes_dataset
from tests.helpers.checkpoints import assert_same_checkpoints

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / 'projects' / 'experiments' / 'study' / 'configs' / 'cpu' / 'pretrain_pvt-mini_shape-classes.py'
OPTIONS = [
    'randomness.seed=0',
    'model.backbone.drop_path_rate=0.2',
    'train_dataloader.batch_size=4',
    'default_hooks.checkpoint.interval=2',
    'default_hooks.checkpoint.by_epoch=False',
]


def start(data, work_dir, **env):
    """Two ranks, whose total batch is 8 images."""
    command = [ROOT / 'tools' / 'dist_train.sh', CONFIG, '2', '--data', data, '--work-dir', work_dir, '--epochs', '3']
    env = os.environ | dict(PYTHON=sys.executable, PYTHONPATH=str(ROOT / 'projects'), OMP_NUM_THREADS='1') | env
    with Path(f'{work_dir}.log').open('w', encoding='utf-8') as log:
        words = [*map(str, command), '--workers', '0', '--cfg-options', *OPTIONS]
        return subprocess.Popen(words, env=env, stdout=log, stderr=subprocess.STDOUT)


def ranks_of(process):
    return [child for child in psutil.Process(process.pid).children() if 'train.py' in ' '.join(child.cmdline())]


@pytest.mark.slow
def test_run_with_a_killed_rank_restarts_and_ends_equal(tmp_path):
    folder = make_shape_classes_dataset(tmp_path / 'folder', 48, 24, image_size=64)
    whole = start(folder, tmp_path / 'whole')
    assert whole.wait(timeout=900) == 0, (tmp_path / 'whole.log').read_text()[-3000:]
    killed = start(folder, tmp_path / 'killed', MAX_RESTARTS='3')
    log = tmp_path / 'killed.log'
    begin = time.time()
    while not (tmp_path / 'killed' / 'last_checkpoint').is_file():
        assert killed.poll() is None, log.read_text()[-3000:]
        assert time.time() - begin < 600, log.read_text()[-3000:]
        time.sleep(0.02)
    victim = ranks_of(killed)[1]
    victim.kill()
    assert killed.wait(timeout=900) == 0, log.read_text()[-3000:]
    assert '(exitcode: -9)' in log.read_text()
    assert log.read_text().count('resumed epoch: ') == 1
    assert_same_checkpoints(*(tmp_path / name / 'iter_18.pth' for name in ('killed', 'whole')))
