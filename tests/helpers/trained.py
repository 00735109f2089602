"""Trained detectors and classifiers, and their options."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONFIG = str(ROOT / 'configs' / 'demo' / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py')


def options(data, **more):
    """The demo's config on a small dataset, two iterations an epoch."""
    cfg = {
        'train_dataloader.batch_size': 2,
        'train_dataloader.num_workers': 0,
        'train_dataloader.persistent_workers': False,
        'val_dataloader.num_workers': 0,
        'val_dataloader.persistent_workers': False,
        'test_dataloader.num_workers': 0,
        'test_dataloader.persistent_workers': False,
        'train_cfg.max_epochs': 1,
        'train_cfg.val_interval': 1,
        'model.test_cfg.score_thr': 0.0,
        'default_hooks.logger.interval': 1,
        'default_hooks.checkpoint.interval': 1,
        'val_evaluator.ann_file': f'{data}/annotations/val.json',
        'test_evaluator.ann_file': f'{data}/annotations/val.json',
    }
    cfg |= {f'{split}_dataloader.dataset.data_root': str(data) for split in ('train', 'val', 'test')}
    return [f'{key}={value}' for key, value in (cfg | more).items()]


def few(**more):
    """Options that keep a run small, without those that name the data."""
    return [
        one for one in options('x', **more) if not re.search(r'data_root|ann_file|max_epochs|val_interval|ckpt', one)
    ]


@pytest.fixture
def without_report(monkeypatch):
    """For further training runs: curves, predictions and the report take half of the time of a small one."""
    monkeypatch.setattr('tokennorm.report.hook.ReportHook.after_train', lambda self, runner: None)
