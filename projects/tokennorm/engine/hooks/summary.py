"""Summary of a training run as the last lines before its first iteration."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import get_world_size
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from tokennorm.base.cores import OtherPrograms, chosen_threads, logical_cores
from tokennorm.base.environment import check_mmcv_ops
from tokennorm.base.messages import counted
from tokennorm.checkpoints.safe_reading import common_meta
from tokennorm.config.tree import as_list, evaluators, innermost_datasets
from tokennorm.engine.resume.resumed_schedule import follows_command
from tokennorm.plan.schedule import every, images_per_step
from tokennorm.registry import HOOKS, type_name


@HOOKS.register_module()
class SummaryHook(Hook):
    """Logs the data, length, batch, schedule and places of a run as the last lines before the first iteration."""

    priority = 'LOWEST'

    def __init__(self) -> None:
        self.others = OtherPrograms()

    def before_train(self, runner: Runner) -> None:
        lines = [f'    {name:<14} {text}' for name, text in self._rows(runner) if text]
        runner.logger.info('\n'.join(['This training run:', *lines]))

    def _rows(self, runner: Runner) -> Iterator[tuple[str, str]]:
        cfg, loop = runner.cfg, runner.train_loop
        yield 'data', describe_data(cfg.train_dataloader.dataset, runner.train_dataloader)
        if runner.val_loop is not None:
            interval = getattr(loop, 'val_interval', 1)
            unit = 'epoch' if isinstance(loop, EpochBasedTrainLoop) else 'iteration'
            when = every(interval, unit)
            if loop.val_begin > interval:
                when += f', from {unit} {loop.val_begin}'
            yield 'validation', f'{describe_data(cfg.val_dataloader.dataset, runner.val_dataloader)}, {when}'
            if any(type_name(metric) == 'CocoMetric' for metric in evaluators(cfg, 'val')):
                yield 'metrics', "AP is from 0 to 100; mmdet's log lines have it from 0 to 1"
        size = None if runner.val_loop is None else evaluated_size(runner.val_dataloader.dataset)
        yield 'image size', '' if size is None else f'short side of {size} pixels in evaluation; --image-size sets it'
        yield 'batch', (images := images_per_step(runner)) and f'{counted(images, "image")} per step'
        if get_device() == 'cpu':
            yield 'threads', describe_threads(torch.get_num_threads(), get_world_size(), self.others.cores())
        lines, rate = getattr(runner, 'fitted', ((), ''))  # of this package's runner
        if runner.iter and follows_command(runner):
            rate = f'{max(group["lr"] for group in runner.optim_wrapper.optimizer.param_groups):.4g}'
            rate += f' at iteration {runner.iter} of the new schedule'
        elif runner.iter:
            rate = 'continues from that of the checkpoint'
        yield from (('schedule', line) for line in lines)
        yield 'learning rate', rate
        if runner.iter >= loop.max_iters:
            yield 'training', 'complete already; a larger --epochs continues it'
        elif runner.iter:
            yield 'begins with', f'iteration {runner.iter + 1}, resumed'
        hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
        best = ''.join(f'the best by {name} and ' for name in getattr(hook, 'key_indicators', None) or [])
        kept = 'all others' if getattr(hook, 'max_keep_ckpts', 0) < 1 else f'the latest {hook.max_keep_ckpts}'
        yield 'checkpoints', f'{hook.out_dir}: {best}{kept}' if hook else 'none'
        yield 'operators', check_mmcv_ops()
        yield 'log, config', runner.log_dir


def describe_threads(threads: int, processes: int, others: float) -> str:
    """Returns how many threads compute, for a run on a CPU; `others` is the cores that other programs keep busy."""
    if processes > 1:
        return f'{threads} in each of {processes} processes; OMP_NUM_THREADS sets another number'
    free = max(1, round(logical_cores() - others))  # threads wait for each other in each operation
    if free < threads and chosen_threads() is None:
        busy = f'other programs keep {others:.1f} of {logical_cores()} cores busy'
        return f'{threads}; {busy}, so {free} would be faster: OMP_NUM_THREADS={free} tokennorm train ...'
    return f'{threads}; OMP_NUM_THREADS sets another number'


def evaluated_size(dataset: Any) -> int | None:
    """Returns the short side in pixels that a built pipeline resizes or crops to; None where no step does."""
    size = None
    for step in getattr(getattr(dataset, 'pipeline', None), 'transforms', ()):
        scale = getattr(step, 'crop_size' if 'CenterCrop' in type(step).__name__ else 'scale', None)
        sides = [side for side in as_list(scale) if side and side > 1]
        size = min(sides, default=size)
    return size


def describe_data(dataset: Any, loader: Any) -> str:
    """Returns the number of images and classes of a loader, and the file or folder that they are read from."""
    first = next(innermost_datasets(dataset))
    files = first.get('ann_file') or first.get('split') or first.get('data_prefix')  # classifiers have the last two
    place = Path(first.get('data_root') or '', files if isinstance(files, str) else '')
    classes = common_meta(getattr(loader.dataset, 'metainfo', None)).get('classes') or ()
    images, samples = sum(map(len, innermost_datasets(loader.dataset))), len(loader.dataset)
    drawn = '' if images == samples else f', {counted(samples, "sample")} per epoch'
    return f'{counted(images, "image")}{drawn}, {counted(len(classes), "class")} ({place})'
