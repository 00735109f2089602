"""What depends on the machine: mixed precision and data workers."""

import os

import torch
from mmengine.config import Config
from mmengine.device import get_device

from tokennorm.base.cores import available_cores
from tokennorm.base.messages import UserError
from tokennorm.config.tree import is_classifier, loaders
from tokennorm.registry import type_name

DTYPES = dict(bf16='bfloat16', fp16='float16')


def use_mixed_precision(cfg: Config, precision: bool | str) -> None:
    """Trains with automatic mixed precision in 'bf16' or 'fp16'; True is bf16 where the GPU has it."""
    if get_device() == 'cpu':
        raise UserError(
            '--amp needs a GPU, and this run is on the CPU, where half precision saves little time; leave it out'
        )
    if precision is True:
        precision = 'bf16' if torch.cuda.is_bf16_supported() else 'fp16'
    # Gradients of bfloat16 have the range of float32, and need no scaling. A scaler would silently skip steps with
    # gradients that are not finite, which NonFiniteHook reports.
    scale = 'dynamic' if precision == 'fp16' else dict(enabled=False)
    wrapper = 'AmpOptimWrapper' if is_classifier(cfg) else 'tokennorm.FeatureAmpOptimWrapper'
    cfg.optim_wrapper.update(type=wrapper, dtype=DTYPES[precision], loss_scale=scale)


def use_full_precision_on_cpu(cfg: Config) -> None:
    """Replaces the mixed precision of a config, which needs a GPU, on a CPU."""
    wrapper = cfg.get('optim_wrapper') or {}
    if get_device() != 'cpu' or not type_name(wrapper).endswith('AmpOptimWrapper'):
        return
    for key in {'dtype', 'loss_scale', 'use_fsdp'} & set(wrapper):
        del wrapper[key]
    wrapper['type'] = 'OptimWrapper'


def unpin_memory_on_cpu(cfg: Config) -> None:
    """Turns pinned memory off on a CPU, where PyTorch would warn of it in every epoch."""
    for loader in loaders(cfg) if get_device() == 'cpu' else ():
        if loader.get('pin_memory'):
            loader['pin_memory'] = False


def set_workers(cfg: Config, workers: int | None) -> None:
    """Sets the data workers of every loader; None for the cores of this machine per rank, less one, from 1 to 4."""
    if workers is None:
        workers = min(4, max(1, available_cores() // int(os.environ.get('LOCAL_WORLD_SIZE', 1)) - 1))
    for loader in loaders(cfg):
        loader.update(num_workers=workers, persistent_workers=workers > 0)
