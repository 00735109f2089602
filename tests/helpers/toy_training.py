"""A toy model and its training run."""

import gc
import itertools
import random
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import Dataset

from tokennorm.checkpoints.locating import newest_checkpoint
from tokennorm.engine.resume.training_state import make_resumable

NUM_SAMPLES = 11


@MODELS.register_module()
class ToyModel(BaseModel):
    """Dropout draws from the generator of the process, batch norm has buffers."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, inputs, mode='tensor'):
        out = self.net(torch.stack(inputs) if isinstance(inputs, list) else inputs)
        return dict(loss=out.square().mean()) if mode == 'loss' else [out]


class Stop(Exception):
    """Raised in place of whatever stops a training run early."""


@DATASETS.register_module()
class ToyData(Dataset):
    """Points whose coordinates each of the three generators moves, as augmentation would."""

    metainfo = dict(classes=('a',))
    drawn = []

    def __len__(self):
        return NUM_SAMPLES

    def get_data_info(self, index):
        return dict(width=1 + index % 2, height=1)

    def __getitem__(self, index):
        noise = [random.random(), np.random.rand(), torch.rand(()).item()]  # noqa: NPY002
        ToyData.drawn.append((int(index), *noise))
        return dict(inputs=torch.tensor([index / NUM_SAMPLES, *noise]))


@METRICS.register_module()
class ToyMetric:
    """Better at each validation; draws random numbers, which must not change the training."""

    def __init__(self):
        self.values = itertools.count()
        self.dataset_meta = None

    def process(self, data_batch, data_samples):
        torch.rand(3)

    def evaluate(self, size):
        return dict(acc=float(next(self.values)))


@HOOKS.register_module()
class StopAt(Hook):
    """Ends the training at a moment: before the step of an iteration, or within a validation."""

    priority = 'HIGHEST'

    def __init__(self, iteration=None, validation=None):
        self.iteration = iteration
        self.validation = validation

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.iter == self.iteration:
            raise Stop

    def before_val_epoch(self, runner):
        if runner.iter == self.validation:
            raise Stop


EPOCHS = dict(type='EpochBasedTrainLoop', max_epochs=4, val_interval=2)

ITERATIONS = dict(type='IterBasedTrainLoop', max_iters=14, val_interval=4)

AVERAGE = dict(type='EMAHook', ema_type='ExponentialMovingAverage', momentum=0.1, update_buffers=True)


def config(
    work_dir,
    train_cfg,
    interval=1,
    by_epoch=True,
    sampler='DefaultSampler',
    batch_sampler=None,
    workers=0,
    accumulate=1,
    save_best=None,
    max_keep_ckpts=2,
    wrapper=None,
    average=False,
    **stop,
):
    loader = dict(dataset=dict(type='mmengine.ToyData'), num_workers=workers, persistent_workers=workers > 0)
    cfg = Config(
        dict(
            default_scope='mmengine',
            model=dict(type='ToyModel'),
            train_dataloader=dict(
                **loader, batch_size=3, sampler=dict(type=sampler, shuffle=True), batch_sampler=batch_sampler
            ),
            val_dataloader=dict(**loader, batch_size=4, sampler=dict(type='DefaultSampler', shuffle=False)),
            val_evaluator=dict(type='ToyMetric'),
            train_cfg=dict(train_cfg),
            val_cfg=dict(),
            optim_wrapper=dict(**wrapper or {}, optimizer=dict(type='AdamW', lr=0.01), accumulative_counts=accumulate),
            param_scheduler=dict(type='CosineAnnealingLR', T_max=18, by_epoch=False),
            default_hooks=dict(
                checkpoint=dict(
                    type='tokennorm.CheckpointHook',
                    interval=interval,
                    by_epoch=by_epoch,
                    max_keep_ckpts=max_keep_ckpts,
                    save_best=save_best,
                )
            ),
            custom_hooks=[dict(type='StopAt', **stop), *([AVERAGE] if average else [])],
            work_dir=str(work_dir),
            experiment_name=str(work_dir),
            randomness=dict(seed=3),
            log_level='ERROR',
        )
    )
    make_resumable(cfg)
    return cfg


def train(work_dir, resume=False, prepare=None, **settings):
    """The weights at the end; with a stop, what is on disk is all that is left."""
    cfg = config(work_dir, **settings)
    cfg.experiment_name += f'{next(COUNTER)}'
    if prepare is not None:
        prepare(cfg)
    if resume:
        latest = newest_checkpoint(Path(work_dir))
        cfg.resume, cfg.load_from = latest is not None, latest and str(latest)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        runner = Runner.from_cfg(cfg)
        try:
            runner.train()
        except Stop:
            return None
    return runner


COUNTER = itertools.count()


@pytest.fixture(autouse=True)
def collect_garbage():
    """Ends the workers of discarded data loaders before the next test."""
    yield
    if torch.multiprocessing.active_children():  # a collection takes longer than most of these runs
        gc.collect()


@pytest.fixture
def amp_on_cpu(monkeypatch):
    """mmengine's AmpOptimWrapper asks for a GPU; its scaler works on a CPU."""
    module = 'mmengine.optim.optimizer.amp_optimizer_wrapper.'
    monkeypatch.setattr(f'{module}is_cuda_available', lambda: True)
    monkeypatch.setattr('tokennorm.plan.hardware.get_device', lambda: 'cuda')
    monkeypatch.setattr(f'{module}GradScaler', partial(torch.amp.GradScaler, 'cpu'))
