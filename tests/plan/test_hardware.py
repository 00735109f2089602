"""What depends on the machine: mixed precision and data workers."""

import os

import pytest
import torch
from mmengine import Config

from tests.helpers.configs import small_config
from tokennorm.base.messages import UserError
from tokennorm.config.paths import config as config_path
from tokennorm.plan.hardware import set_workers, use_full_precision_on_cpu, use_mixed_precision
from tokennorm.plan.recipe import open_plan


def test_options_of_mixed_precision(monkeypatch):
    cfg = Config.fromfile(config_path('retinanet_pvt-mini_fpn'))
    device = 'tokennorm.plan.hardware.get_device'
    monkeypatch.setattr(device, lambda: 'cpu')
    with pytest.raises(UserError, match='--amp needs a GPU'):
        use_mixed_precision(cfg, 'fp16')
    use_full_precision_on_cpu(cfg)
    monkeypatch.setattr(device, lambda: 'cuda')
    monkeypatch.setattr(torch.cuda, 'is_bf16_supported', lambda: True)
    use_mixed_precision(cfg, 'fp16')
    assert (cfg.optim_wrapper.dtype, cfg.optim_wrapper.loss_scale) == ('float16', 'dynamic')
    use_mixed_precision(cfg, True)
    assert (cfg.optim_wrapper.dtype, cfg.optim_wrapper.loss_scale) == ('bfloat16', dict(enabled=False))
    classifier = Config.fromfile(config_path('pvt-tiny_8xb128_in1k'))
    use_mixed_precision(classifier, 'bf16')
    assert classifier.optim_wrapper.type == 'AmpOptimWrapper'
    use_full_precision_on_cpu(classifier)
    assert classifier.optim_wrapper.type == 'AmpOptimWrapper'
    monkeypatch.setattr(device, lambda: 'cpu')
    use_full_precision_on_cpu(classifier)
    assert classifier.optim_wrapper.type == 'OptimWrapper'
    assert not {'dtype', 'loss_scale'} & set(classifier.optim_wrapper)


@pytest.mark.parametrize(('cores', 'ranks', 'workers'), [(1, 1, 1), (2, 1, 1), (4, 1, 3), (32, 1, 4), (8, 4, 1)])
def test_workers_follow_the_cores(monkeypatch, cores, ranks, workers):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: set(range(cores)))
    monkeypatch.setenv('LOCAL_WORLD_SIZE', str(ranks))
    cfg = small_config()
    set_workers(cfg, None)
    assert (cfg.val_dataloader.num_workers, cfg.val_dataloader.persistent_workers) == (workers, True)


@pytest.mark.parametrize(
    ('device', 'given', 'pinned'), [('cpu', False, False), ('cuda', False, True), ('cpu', True, True)]
)
def test_memory_is_pinned_for_a_gpu_or_by_the_user(device, given, pinned, monkeypatch):
    monkeypatch.setattr('tokennorm.plan.hardware.get_device', lambda: device)
    options = {'train_dataloader.pin_memory': True} if given else {}
    cfg = open_plan('mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco', options=options).cfg
    assert (cfg.train_dataloader.pin_memory, cfg.val_dataloader.get('pin_memory')) == (pinned, None)
