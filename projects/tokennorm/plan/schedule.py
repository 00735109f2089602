"""Builds the schedule for another length of training, and scales the learning rate to the total batch.

- SGD: proportional to the batch (Goyal et al., 2017, "Accurate, Large Minibatch SGD", arXiv 1706.02677).
- Adam, AdamW, RMSprop and other optimizers that divide by the root of squared gradients: proportional to its square
  root (Malladi et al., 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287).
"""

import math
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmengine.dist import get_world_size
from mmengine.hooks import LoggerHook
from mmengine.registry import OPTIMIZERS
from mmengine.runner import Runner

from tokennorm.base.messages import UserError, counted
from tokennorm.config.paths import is_installed
from tokennorm.findings.elsewhere import SCHEDULE_LENGTH
from tokennorm.plan.changes import Plan
from tokennorm.plan.options import TrainOptions
from tokennorm.registry import arguments_of, type_name

Scheduler = dict[str, Any]

_BUILT = ('MultiStepLR', 'CosineAnnealingLR')
_PLACES = ('begin', 'end', 'T_max', 'milestones', 'by_epoch', 'convert_to_iter_based')
_RATES = ('eta_min', 'eta_max', 'min_value')
_WARM_UPS = ('LinearLR', 'ConstantLR', 'QuadraticWarmupLR')
MOST_WARM_UP = 0.05  # of the iterations
_GPUS_X_BATCH = re.compile(r'(?:^|[_-])(\d+)xb(\d+)(?=[_-]|$)')


def fit_to_training(runner: Runner, plan: Plan, options: TrainOptions) -> tuple[list[str], str]:
    """Fits schedule, log lines and learning rate to the length of training and the total batch.

    A recipe with its own data, length and batch keeps its schedule, its rate and its log lines. The runner must be
    built and not have trained. Returns lines about the schedule, and one about the rate, for the summary.
    """
    own_data = options.data is not None
    try:
        len(runner.train_dataloader)
    except TypeError:
        raise UserError('train_dataloader: its sampler has no length, which mmengine needs') from None
    plan.cfg = runner.cfg  # a copy
    builds = own_data or _length(plan.recipe) != _length(runner.cfg)
    schedule = fit_schedule(runner, plan, plan.recipe.get('train_cfg') or {}, builds, short_warm_up=own_data)
    if own_data:  # on a CPU an epoch of few iterations takes minutes
        for hook in (hook for hook in runner.hooks if isinstance(hook, LoggerHook)):
            often = max(1, min(hook.interval, len(runner.train_dataloader) // 4))
            if plan.set('default_hooks.logger.interval', often, 'four log lines per epoch', show=False):
                hook.interval = often
    rate = fit_lr(runner, plan, options.lr, own_data)
    runner.dump_config()
    return schedule, rate


# ---- the learning rate


def accumulated(cfg: Mapping[str, Any]) -> int:
    """Returns the batches per optimizer step."""
    return (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)


def images_per_step(runner: Runner) -> int:
    """Returns the images per optimizer step: of a batch, times ranks, times accumulated batches.

    A batch has at most the images of an epoch, unless the sampler repeats them. It is 0 where batches have no size.
    """
    batches = runner.train_dataloader.batch_sampler
    batch, sampler = _largest(getattr(batches, 'batch_size', None)), getattr(batches, 'sampler', None)
    batch = min(batch, len(sampler)) if isinstance(sampler, DefaultSampler) else batch
    return batch * get_world_size() * accumulated(runner.cfg)


def _largest(batch_size: int | Sequence[int] | None) -> int:
    """Returns the images of a batch; with a size for each dataset, from which each batch is, at most."""
    return max(batch_size) if isinstance(batch_size, Sequence) else batch_size or 0


def batch_of_lr(cfg: Mapping[str, Any]) -> int:
    """Returns the total batch that a config's learning rate is for; 0 where the config does not say.

    Training writes `images_per_step=[N, total]`, which holds as long as `base_batch_size` is N. Otherwise a
    `base_batch_size` of up to one batch on one GPU leaves out accumulated batches, as mmengine does, and a
    larger one is taken as the total: accumulation makes up for GPUs.
    """
    auto = cfg.get('auto_scale_lr') or {}
    base, batch = auto.get('base_batch_size') or 0, _largest((cfg.get('train_dataloader') or {}).get('batch_size'))
    written_for, total = auto.get('images_per_step') or (None, None)
    if written_for == base:
        return total
    return base * accumulated(cfg) if base <= batch else base


def batch_in_name(cfg: Config) -> int:
    """Returns the total batch in the name of a config's nearest file with one: 256 for `8xb32`; 0 where none has.

    Only names of installed configs count: in a user's own name it is his hardware. It is 0, too, where a file that is
    as near sets `base_batch_size`. mmdet's configs often inherit that of a base with another batch.
    """
    batch = 0
    for line in (str(Path(cfg.filename).absolute()), *cfg.text.splitlines()):  # bases come first, after their paths
        if line.startswith('/') and (named := _GPUS_X_BATCH.search(Path(line).stem)) and is_installed(line):
            batch = int(named[1]) * int(named[2]) or batch
        elif 'base_batch_size' in line.partition('#')[0]:
            batch = 0
    return batch


def scaled_lr(lr: float, optimizer: str, base_batch: int, total_batch: int) -> tuple[float, str]:
    """Scales a config's learning rate to another total batch. Returns it, and the reason in one line."""
    if base_batch == total_batch:
        return lr, f'from the config, batch size {base_batch}'
    ratio, rule = total_batch / base_batch, 'linear in the batch (arXiv 1706.02677)'
    if optimizer not in ('SGD', 'ASGD'):
        ratio, rule = math.sqrt(ratio), 'square root of the batch (arXiv 2205.10287)'
    return lr * ratio, f'{lr:g} is for a batch size of {base_batch}, this run has {total_batch}; {optimizer}: {rule}'


def fit_lr(runner: Runner, plan: Plan, lr: float | None = None, by_batch: bool = False) -> str:
    """Sets the learning rate of the optimizer, and returns it with the reason; '' where the config has several.

    It is the user's `lr`, or with `by_batch` the recipe's, scaled from the batch that it is for to the batch of this
    run. Rates in the schedule keep their ratio to it, unless the user sets them.
    """
    if not isinstance(runner.optim_wrapper, dict) or 'optimizer' not in runner.optim_wrapper:
        return ''
    optimizer, auto = runner.optim_wrapper['optimizer'], runner.cfg.get('auto_scale_lr') or {}
    old = optimizer.get('lr', arguments_of(optimizer, None, OPTIMIZERS).get('lr'))
    if isinstance(old, str):
        raise UserError(f'optim_wrapper.optimizer.lr={old!r} is text; in YAML a number such as 1.0e-4 needs its point')
    if lr is None and not old:
        return f'{old}: as the config sets it'
    value, reason, total = old, 'as the config sets it', images_per_step(runner)
    base, enabled = auto.get('base_batch_size'), auto.get('enable')  # mmengine scales then, when training begins
    batch = (runner.cfg.get('train_dataloader') or {}).get('batch_size')
    for name, number, is_read in (
        ('auto_scale_lr.base_batch_size', base, enabled or (by_batch and base)),
        ('train_dataloader.batch_size', batch, enabled),
    ):
        if is_read and not (isinstance(number, int) and number > 0):
            raise UserError(f'{name}={number!r} must be an integer above 0 to scale the learning rate')
    by_batch = by_batch and total > 0 and not enabled
    if lr is not None:
        value, reason = lr, '--lr'
    elif by_batch and (base_batch := batch_of_lr(dict(plan.recipe, auto_scale_lr=auto))):
        value, reason = scaled_lr(old, type_name(optimizer), base_batch, total)
    if not plan.set('optim_wrapper.optimizer.lr', value, reason, show=False):
        value, reason = old, 'as --cfg-options set it'
    optimizer['lr'] = value
    if by_batch and auto:  # for the next run from the config of this one
        base = base if base and plan.users('auto_scale_lr') else total // accumulated(runner.cfg)
        with plan.step('the batch of the learning rate', show=False):
            runner.cfg.auto_scale_lr.update(base_batch_size=base, images_per_step=[base, total])
    if isinstance(runner.param_schedulers, list):
        schedulers = [_with_rates(scheduler, value / old if old else 1.0) for scheduler in runner.param_schedulers]
        _set_schedule(runner, plan, schedulers)
        if peaks := [f'{scheduler["eta_max"]:.4g}' for scheduler in runner.param_schedulers if 'eta_max' in scheduler]:
            reason += f'; the schedule goes up to {peaks[0]}'
    if enabled:  # it leaves out accumulated batches
        batch *= get_world_size()
        reason = f'{value:.4g} ({reason}), scaled from batches of {base} to {batch}: auto_scale_lr'
        value *= batch / base
    return f'{value:.4g}: {reason}'


def _with_rates(scheduler: Mapping[str, Any], factor: float) -> Scheduler:
    """Multiplies the learning rates that a scheduler names."""
    of_lr = type_name(scheduler).endswith('LR') or scheduler.get('param_name') == 'lr'
    keys = [key for key in _RATES if of_lr and isinstance(scheduler.get(key), int | float)]
    return dict(scheduler) | {key: scheduler[key] * factor for key in keys}


# ---- the schedule


def _length(cfg: Mapping[str, Any]) -> list[Any]:
    """Returns what a config says about the number of iterations."""
    loop, loader = cfg.get('train_cfg') or {}, cfg.get('train_dataloader') or {}
    return [loop.get('max_epochs'), loop.get('max_iters'), loader.get('batch_size')]


def fit_schedule(
    runner: Runner, plan: Plan, made_for: Mapping[str, Any], builds: bool, short_warm_up: bool = False
) -> list[str]:
    """Builds the schedule for the length of training. Returns lines for the summary; none with several optimizers.

    Without `builds`, where the user sets a scheduler, and where it is neither steps nor a cosine, it stays, and a
    finding names both ends. `made_for` is the `train_cfg` of the recipe, whose length a schedule without an end has.
    `short_warm_up` builds it even where the length fits, with a warm-up that is short.
    """
    schedulers = runner.param_schedulers
    if isinstance(schedulers, dict) and 'type' in schedulers:
        schedulers = [schedulers]
    if not isinstance(schedulers, list) or not all(isinstance(scheduler, dict) for scheduler in schedulers):
        return []
    iterations, epoch_length = runner.train_loop.max_iters, len(runner.train_dataloader)
    length = made_for.get('max_iters') or made_for.get('max_epochs', 0) * epoch_length
    end = schedule_end(schedulers, epoch_length, length)
    fits, is_built = end in (None, iterations), False
    if (builds and not fits) or short_warm_up:
        built = built_schedule(schedulers, iterations, epoch_length, length)
        is_built = built is not None and _set_schedule(runner, plan, built)
    lines = [describe(runner.param_schedulers, iterations, epoch_length)]
    if end is not None and not fits and is_built:
        change, new = 'shortened' if iterations < end else 'stretched', counted(iterations / epoch_length, 'epoch')
        lines.append(f'{change} from {end / epoch_length:g} to {new}')
    elif end is not None and not fits:
        ends, training = (f'iteration {i} (epoch {i / epoch_length:g})' for i in (end, iterations))
        SCHEDULE_LENGTH.report(text=f'the learning rate schedule ends at {ends}, but training ends at {training}')
    return lines


def _set_schedule(runner: Runner, plan: Plan, schedulers: list[Scheduler]) -> bool:
    is_set = plan.set('param_scheduler', deepcopy(schedulers), 'length of training', show=False)
    if is_set:
        runner.param_schedulers = schedulers
    return is_set


def describe(schedulers: Sequence[Mapping[str, Any]], iterations: int, epoch_length: int) -> str:
    """Returns one line: the length of training, and what each scheduler does when."""
    epochs = iterations / epoch_length
    parts = [f'{counted(epochs, "epoch")} of {counted(epoch_length, "iteration")}']
    for scheduler in [schedulers] if isinstance(schedulers, Mapping) else schedulers:
        unit = 'epoch' if scheduler.get('by_epoch', True) else 'iteration'
        if 'milestones' in scheduler:
            steps = ' and '.join(map(str, scheduler['milestones']))
            parts.append(f'learning rate x {scheduler.get("gamma", 0.1):g} at {unit} {steps}')
        else:
            name = 'warm-up' if is_warm_up(scheduler) else type_name(scheduler)
            end = scheduler.get('end', scheduler.get('total_steps'))
            parts.append(f'{name} to {unit} {end}' if _end(scheduler, epoch_length) else name)
    return ', '.join(parts)


def every(interval: int, unit: str = 'epoch') -> str:
    """Returns 'after every epoch' or 'after every 5 epochs'."""
    return f'after every {counted(interval, unit).removeprefix("1 ")}'


def schedule_end(schedulers: Sequence[Mapping[str, Any]], epoch_length: int, length: int = 0) -> int | None:
    """Returns the iteration at which the last scheduler ends; None where none has an end.

    Milestones and periods without an end are for a training run of `length` iterations, which is then their end.
    """
    main = [scheduler for scheduler in schedulers if not is_warm_up(scheduler)]
    ends = [end for scheduler in main if (end := _end(scheduler, epoch_length)) is not None]
    has_points = any(key in scheduler for scheduler in main for key in ('milestones', 'periods', 'T_max'))
    return max(ends, default=length if length and has_points else None)


def is_warm_up(scheduler: Mapping[str, Any]) -> bool:
    """Returns whether a scheduler raises the learning rate from the first iteration to an end."""
    rises = scheduler.get('start_factor', scheduler.get('factor', 0.1)) < scheduler.get('end_factor', 1.0)
    from_first = scheduler.get('begin', 0) == 0 and 'end' in scheduler
    return type_name(scheduler) in _WARM_UPS and from_first and rises


def built_schedule(
    recipe: Sequence[Mapping[str, Any]], iterations: int, epoch_length: int, length: int = 0
) -> list[Scheduler] | None:
    """Builds the warm-up of a recipe, and then its steps or its cosine, for another length of training.

    They count iterations. Steps and cosine are at the same fractions of training as in the recipe. Warm-up ends after
    one epoch or 5% of the iterations at the latest. Where that leaves fewer than two iterations there is none:
    mmengine's would never end. `length` as in `schedule_end`. None is for a recipe with any other schedule.
    """
    warm_ups = [scheduler for scheduler in recipe if is_warm_up(scheduler)]
    rest = [one for one in recipe if not is_warm_up(one) and (type_name(one), one.get('factor')) != ('ConstantLR', 1)]
    if len(warm_ups) > 1 or len(rest) > 1 or any(type_name(one) not in _BUILT for one in rest):
        return None
    built = []
    for scheduler in warm_ups:
        end = min(_end(scheduler, epoch_length) or 0, epoch_length, int(MOST_WARM_UP * iterations))
        built += [_shape(scheduler) | dict(by_epoch=False, begin=0, end=end)] if end > 1 else []
    for scheduler in rest:
        recipe_end = schedule_end(recipe, epoch_length, length) or iterations
        end = round((_end(scheduler, epoch_length) or recipe_end) * iterations / recipe_end)
        unit = (epoch_length if scheduler.get('by_epoch', True) else 1) * iterations / recipe_end
        main = _shape(scheduler) | dict(by_epoch=False, begin=round(scheduler.get('begin', 0) * unit), end=end)
        if 'milestones' in scheduler:  # one at the end would not come
            main['milestones'] = [max(1, min(round(i * unit), end - 1)) for i in scheduler['milestones']]
        built.append(main)
    return built


def _shape(scheduler: Mapping[str, Any]) -> Scheduler:
    """Returns a scheduler without its places in time."""
    return {key: value for key, value in scheduler.items() if key not in _PLACES}


def _end(scheduler: Mapping[str, Any], epoch_length: int) -> int | None:
    """Returns the iteration at which a scheduler ends; None if it has no end."""
    end = scheduler.get('end', scheduler.get('total_steps'))  # the latter of OneCycleLR
    if end is None or end >= 10**9:  # mmengine's INF
        return None
    return round(end * epoch_length) if scheduler.get('by_epoch', True) else end
