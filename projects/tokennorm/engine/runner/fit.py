"""Fits a built runner: schedules to the length of its training, the learning rate to its total batch."""

import warnings
from copy import deepcopy

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.runner import Runner

from tokennorm.engine.runner.learning_rate import LearningRate, scaled_lr
from tokennorm.engine.runner.schedule import describe, fit_to, mismatch, schedule_end, warm_up_change


def accumulated(cfg: Config) -> int:
    """Returns the batches per optimizer step."""
    return (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)


def fit_schedule(runner: Runner, stretch: bool = True, short_warm_up: bool = False) -> list[str]:
    """Has the schedule of the learning rate end with training.

    Args:
        runner: Built, before training.
        stretch: Whether a schedule of another length is stretched or compressed; otherwise a warning names both ends.
        short_warm_up: Whether a long warm-up is cut even where the length fits.

    Returns:
        The schedule and its changes, one line each; nothing where the config has several optimizers.
    """
    schedulers = runner.param_schedulers
    if not isinstance(schedulers, list) or not all(isinstance(scheduler, dict) for scheduler in schedulers):
        return []
    iterations, epoch_length = runner.train_loop.max_iters, len(runner.train_dataloader)
    problem = mismatch(schedulers, iterations, epoch_length)
    changes = []
    if problem and not stretch:
        warnings.warn(f'{problem}, since --cfg-options sets a scheduler', stacklevel=2)
    elif problem or short_warm_up:
        if problem:
            ratio = iterations / schedule_end(schedulers, epoch_length)
            changes.append(f'scaled by {ratio:.4g}: in the config, {problem}')
        fitted = fit_to(schedulers, iterations, epoch_length)
        changes.append(warm_up_change(schedulers, fitted, epoch_length))
        schedulers = fitted
        runner.param_schedulers = schedulers
        runner.cfg.param_scheduler = deepcopy(schedulers)
        runner.dump_config()
    return [describe(schedulers, iterations, epoch_length), *filter(None, changes)]


def fit_lr(runner: Runner, lr: float | None = None, base_batch: int = 0) -> LearningRate | None:
    """Sets the learning rate of the optimizer, and returns it; None where the config has several optimizers.

    Args:
        runner: Built, before training.
        lr: Learning rate that the user chose.
        base_batch: Images per optimizer step that the config's learning rate is for, to scale it to the batch of this
            run; 0 leaves it as it is.
    """
    if not isinstance(runner.optim_wrapper, dict) or 'optimizer' not in runner.optim_wrapper:
        return None
    optimizer = runner.optim_wrapper['optimizer']
    if lr is None and not base_batch:
        return LearningRate(optimizer['lr'], 'as the config sets it')
    if lr is None:
        found = scaled_lr(optimizer['lr'], str(optimizer['type']), base_batch, images_per_step(runner))
    else:
        found = LearningRate(lr, '--lr')
    for cfg in (optimizer, runner.cfg.optim_wrapper['optimizer']):
        cfg['lr'] = found.value
    runner.dump_config()
    return found


def images_per_step(runner: Runner) -> int:
    """Returns the images per optimizer step: of a batch, times ranks, times accumulated batches."""
    return runner.train_dataloader.batch_sampler.batch_size * get_world_size() * accumulated(runner.cfg)
