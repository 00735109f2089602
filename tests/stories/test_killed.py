"""kill -9 at random moments of a detector's training: it resumes, and ends where it would have ended, bit for bit."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.shapes import make_shapes_dataset
from tests.helpers.checkpoints import assert_same_checkpoints

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / 'configs' / 'demo' / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'
OPTIONS = {
    'train_dataloader.batch_size': 2,
    'model.backbone.drop_path_rate': 0.2,
    'train_cfg.max_epochs': 4,
    'train_cfg.val_interval': 2,
    'default_hooks.checkpoint.interval': 3,
    'default_hooks.checkpoint.by_epoch': False,
    'custom_hooks': '[]',
}


def start(data, work_dir, *arguments, **changes):
    options = {key: value for key, value in (OPTIONS | changes).items() if value is not None} | {
        f'{split}_dataloader.dataset.data_root': data for split in ('train', 'val')
    }
    options |= {'val_evaluator.ann_file': f'{data}/annotations/val.json'}
    work_dir.mkdir(exist_ok=True)  # --resume needs it
    command = [sys.executable, ROOT / 'tools' / 'train.py', CONFIG, '--work-dir', work_dir, '--resume', *arguments]
    env = os.environ | dict(PYTHONPATH=str(ROOT / 'projects'), OMP_NUM_THREADS='1')
    with Path(f'{work_dir}.log').open('a', encoding='utf-8') as log:
        return subprocess.Popen(
            [*map(str, command), '--cfg-options', *(f'{key}={value}' for key, value in options.items())],
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def finish(process, work_dir):
    assert process.wait(timeout=600) == 0, Path(f'{work_dir}.log').read_text(encoding='utf-8')[-3000:]


def wait_for_checkpoint(process, work_dir):
    """Until the process has written one, or has ended."""
    begin = time.time()
    pointer = work_dir / 'last_checkpoint'
    while process.poll() is None and not (pointer.is_file() and pointer.stat().st_mtime > begin):
        assert time.time() - begin < 200, Path(f'{work_dir}.log').read_text(encoding='utf-8')[-3000:]
        time.sleep(0.02)


@pytest.mark.slow
def test_a_training_that_is_killed_again_and_again(tmp_path):
    data = make_shapes_dataset(tmp_path / 'shapes', num_train=10, num_val=2, image_size=64)
    finish(start(data, tmp_path / 'whole'), tmp_path / 'whole')
    choose = random.Random()
    kills = 0
    while True:
        process = start(data, tmp_path / 'killed')
        if kills < 4:
            wait_for_checkpoint(process, tmp_path / 'killed')
            time.sleep(choose.uniform(0, 1.5))
            if process.poll() is None:
                process.kill()
                process.wait()
                kills += 1
                continue
        finish(process, tmp_path / 'killed')
        break
    assert kills >= 2
    assert_same_checkpoints(*(tmp_path / name / 'iter_20.pth' for name in ('killed', 'whole')))
