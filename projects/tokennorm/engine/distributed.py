"""Ranks of a distributed run, also on CPUs: mmengine's launchers call `torch.cuda.set_device`."""

import gc
import warnings
from datetime import timedelta

import mmengine.device.utils as mmengine_device
import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import distributed as torch_dist
from torch import nn

from tokennorm.base.messages import UserError


def unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model inside a wrapper such as DistributedDataParallel, or the model."""
    return model.module if is_model_wrapper(model) else model


def use_device(name: str) -> None:
    """Makes mmengine train on 'cpu', 'cuda' or 'cuda:N' in this process, until `one_run` ends."""
    device = torch.device(name)
    count = torch.cuda.device_count()
    if device.type == 'cuda' and (device.index or 0) >= count:
        raise UserError(f'--device {name}: this machine has {count or "no"} GPU{"s" if count > 1 else ""} for PyTorch')
    if device.type == 'cuda':
        torch.cuda.set_device(device.index or 0)
    mmengine_device.DEVICE = device.type  # `get_device` of mmengine 0.10.12 returns it


def start_cpu_processes(cfg: Config) -> None:
    """Creates a gloo process group, and wraps the model for CPUs, if torchrun started this process without a GPU.

    In all other cases mmengine creates the group.
    """
    if cfg.get('launcher', 'none') != 'pytorch' or get_device() != 'cpu':
        return
    if not torch_dist.is_initialized():
        from torch.distributed.nn import functional  # noqa: F401  # later, its default arguments would hold the group

        timeout = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout', 1800)
        torch_dist.init_process_group('gloo', timeout=timedelta(seconds=timeout))
    warnings.filterwarnings('ignore', message='Grad strides do not match bucket view strides')  # with channels last
    unused = cfg.get('find_unused_parameters', False)
    defaults = dict(type='MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused)
    wrapper = defaults | (cfg.get('model_wrapper_cfg') or {})
    if wrapper['type'].endswith('DistributedDataParallel'):
        cfg.model_wrapper_cfg = wrapper | dict(device_ids=None)


def end_together(runner: Runner) -> None:
    """Waits for all processes, since rank 0 writes its files last, and ends their group and its threads.

    A thread of the group that is still there when Python ends may abort the process, and the launcher then ends the
    others. The threads end when nothing refers to the group: the wrapper of the model does.
    """
    if torch_dist.is_initialized():
        torch_dist.barrier()
        runner.model = unwrapped(runner.model)
        gc.collect()
        torch_dist.destroy_process_group()
