"""Fits a built runner: schedules to the length of its training, the learning rate to its total batch."""

import warnings
from copy import deepcopy

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.runner import Runner

from tokennorm.engine.runner.learning_rate import LearningRate, scaled_lr
from tokennorm.engine.runner.schedule import describe, fit_to, mismatch, schedule_end


def accumulated(cfg: Config) -> int:
    """Returns the batches per optimizer step."""
    return (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)


def fit_schedule(runner: Runner, stretch: bool = True, short_warm_up: bool = False) -> None:
    """Has the schedule of the learning rate end with training, and logs the result.

    Args:
        runner: Built, before training.
        stretch: Whether a schedule of another length is stretched or compressed; otherwise a warning names both ends.
        short_warm_up: Whether a long warm-up is cut even where the length fits.
    """
    schedulers = runner.param_schedulers
    if not isinstance(schedulers, list) or not all(isinstance(scheduler, dict) for scheduler in schedulers):
        return
    iterations, epoch_length = _lengths(runner)
    problem = mismatch(schedulers, iterations, epoch_length)
    if problem and not stretch:
        warnings.warn(f'{problem}, since --cfg-options sets a scheduler', stacklevel=2)
    elif problem or short_warm_up:
        end = schedule_end(schedulers, epoch_length)
        if problem:
            runner.logger.info(f'Schedule: {problem}; it is scaled by {iterations / end:.4g}')
        schedulers = fit_to(schedulers, iterations, epoch_length)
        runner.param_schedulers = schedulers
        runner.cfg.param_scheduler = deepcopy(schedulers)
        runner.dump_config()
    runner.logger.info(f'Schedule: {describe(schedulers, iterations, epoch_length)}')


def set_lr(runner: Runner, lr: LearningRate) -> None:
    """Sets the learning rate of the optimizer, and logs the reason."""
    if not isinstance(runner.optim_wrapper, dict) or 'optimizer' not in runner.optim_wrapper:
        return  # several optimizers
    for cfg in (runner.optim_wrapper, runner.cfg.optim_wrapper):
        cfg['optimizer']['lr'] = lr.value
    runner.dump_config()
    runner.logger.info(f'Learning rate: {lr.value:.4g} ({lr.reason})')


def lr_for_batch(runner: Runner, base_batch: int) -> LearningRate:
    """Returns the learning rate for the total batch of a runner.

    Args:
        runner: Built, before training.
        base_batch: Images per optimizer step that the config's learning rate is for.
    """
    optimizer = runner.optim_wrapper['optimizer']
    total = runner.train_dataloader.batch_sampler.batch_size * get_world_size() * accumulated(runner.cfg)
    return scaled_lr(optimizer['lr'], str(optimizer['type']), base_batch, total)


def _lengths(runner: Runner) -> tuple[int, int]:
    """Iterations of training and of an epoch."""
    return runner.train_loop.max_iters, len(runner.train_dataloader)
