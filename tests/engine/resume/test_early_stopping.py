"""Early stopping counts on after an interruption: the same weights, averages and stopping epoch."""

import numpy as np
import pytest
import torch
from mmengine.registry import METRICS

from tests.helpers import toy_training as toys
from tests.helpers.checkpoints import assert_same_checkpoints

STOP = dict(type='tokennorm.EarlyStoppingHook', monitor='acc', rule='greater', patience=3, min_delta=5e-4)
LOOP = dict(type='EpochBasedTrainLoop', max_epochs=30, val_interval=1)


@METRICS.register_module()
class SizeOfOutputs:
    """Larger is better, while training makes the outputs small."""

    def __init__(self):
        self.values, self.dataset_meta = [], None

    def process(self, data_batch, data_samples):
        self.values += [float(sample.abs().mean()) for sample in data_samples]

    def evaluate(self, size):
        values, self.values = self.values, []
        return dict(acc=float(np.mean(values)))


def prepare(cfg):
    cfg.custom_hooks = [*cfg.custom_hooks, STOP]
    cfg.val_evaluator = dict(type='SizeOfOutputs')


def train(work_dir, **settings):
    return toys.train(
        work_dir, prepare=prepare, train_cfg=LOOP, average=True, save_best='acc', interval=3, by_epoch=False, **settings
    )


@pytest.mark.parametrize('moment', [dict(validation=12), dict(iteration=13)])
def test_resumed_run_stops_early_at_the_same_epoch(tmp_path, moment):
    whole = train(tmp_path / 'whole')
    assert 3 < whole.epoch < 30, 'did not stop early'
    assert train(tmp_path / 'cut', **moment) is None
    resumed = train(tmp_path / 'cut', resume=True)
    assert (resumed.epoch, resumed.iter) == (whole.epoch, whole.iter)
    saved = (tmp_path / name / f'iter_{whole.iter // 3 * 3}.pth' for name in ('cut', 'whole'))
    assert_same_checkpoints(*saved, 'state_dict', 'ema_state_dict', 'early_stopping')


def test_a_run_that_has_stopped_does_not_continue(tmp_path):
    whole = train(tmp_path)
    best = torch.load(next(tmp_path.glob('best_*.pth')), weights_only=False)
    score = best['message_hub']['runtime_info']['best_score']
    assert best['early_stopping'] == dict(best_score=pytest.approx(score), wait_count=0)  # counted before
    resumed = train(tmp_path, resume=True)
    assert resumed.epoch <= whole.epoch
