"""What people see while a model trains: a progress bar, elsewhere the loss every minute, and one line per epoch."""

import logging
import math
import os
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from tokennorm.base.environment import FORKS
from tokennorm.registry import HOOKS

WINDOW = 50  # iterations over which the loss of the bar is averaged
EVERY = 60  # seconds between two lines with the loss where there is no bar
BAR = '{desc}|{bar}| {n_fmt}/{total_fmt}  {remaining} left{postfix}'
_UPSTREAM = tuple(f'{Path(spec.origin).parent}{os.sep}' for name in FORKS if (spec := find_spec(name)) and spec.origin)


@HOOKS.register_module()
class ProgressHook(Hook):
    """Shows a bar with epoch, loss, AP and the time left where the output is a terminal, and logs one line per epoch.

    Without a terminal it logs the loss and the time left every minute. The console shows no routine lines of the
    upstream libraries; warnings and other lines appear, above the bar. The log file has all of them. Training by
    iterations has one line per validation instead.

    Args:
        metric: Name of the metric that chooses the best checkpoint, such as 'coco/bbox_mAP'; None shows none.
        bar: Whether to show a bar; None shows one in a terminal.
    """

    priority = 'LOWEST'  # the best checkpoint is known

    def __init__(self, metric: str | None = None, bar: bool | None = None) -> None:
        self.metric, self.bar = metric, bar
        self.best, self.score = -math.inf, ''  # the metric, and the text of the latest one
        self.display: tqdm | None = None
        self._open = ExitStack()  # the bar, and the handlers of the console
        self._begin()

    def _begin(self) -> None:
        """Begins to count for the next line."""
        self._begun = self._trained = self._shown = time.time()
        self._iterations = self._images = 0

    def before_train(self, runner: Runner) -> None:
        """Opens the bar, in rank 0, and leaves routine lines out of the console."""
        noted = runner.message_hub.runtime_info.get('best_score')  # of the run that is resumed
        self.best = max(self.best, float(noted)) if isinstance(noted, int | float) else self.best
        has_bar = is_main_process() and (_has_terminal() if self.bar is None else self.bar)
        if has_bar:
            self._open.enter_context(logging_redirect_tqdm([runner.logger]))
        for handler in console_handlers(runner.logger):  # with a bar those that write above it
            handler.addFilter(is_shown)
            self._open.callback(handler.removeFilter, is_shown)
        if has_bar:
            iterations = runner.train_loop.max_iters
            bar = tqdm(total=iterations, initial=runner.train_loop.iter, file=sys.stdout, bar_format=BAR,
                       smoothing=0, leave=False, dynamic_ncols=True)  # fmt: skip
            self.display = self._open.enter_context(bar)

    def before_train_epoch(self, runner: Runner) -> None:
        self._write_line(runner)  # of an epoch without a validation
        self._begin()
        if self.display is not None:
            self.display.set_description(f'Epoch {runner.epoch + 1}/{runner.max_epochs}', refresh=False)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._iterations += 1
        self._images += len(data_batch['inputs']) if isinstance(data_batch, dict) and 'inputs' in data_batch else 0
        self._trained = time.time()
        if self.display is not None:
            self.display.set_postfix_str(f'loss {loss_of(runner, WINDOW):.3g}{self.score}', refresh=False)
            self.display.update()
        elif self._trained >= self._shown + EVERY:
            self._shown = self._trained
            left = (self._trained - self._begun) / self._iterations * (runner.max_iters - runner.iter - 1)
            parts = [f'epoch {runner.epoch + 1}/{runner.max_epochs}'] * isinstance(
                runner.train_loop, EpochBasedTrainLoop
            )
            parts += [f'iteration {runner.iter + 1}/{runner.max_iters}', f'loss {loss_of(runner, WINDOW):.4g}']
            runner.logger.info('  '.join([*parts, f'{tqdm.format_interval(left)} left']))

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Notes the metric, and writes the line of the epoch."""
        value = float((metrics or {}).get(self.metric or '', math.nan))
        if value >= 0:  # COCO's is -1 where no object counts
            self.best = max(self.best, value)
            best = '' if value >= self.best else f', best {named_score(self.metric or "", self.best).split()[-1]}'
            self.score = f'  {named_score(self.metric or "", value)}{best}'
        self._write_line(runner, metrics)

    def after_train(self, runner: Runner) -> None:
        self._write_line(runner)
        self.on_exit(runner)

    def on_exit(self, runner: Runner) -> None:
        """Closes the bar, also when training ends by an error."""
        self._open.close()
        self.display = None

    def _write_line(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Logs what happened since the latest line: loss, the metric, AP50 beside AP, images per second and the time.

        The images are those of all processes, without the time of the validation.
        """
        if not self._iterations:  # such as before the first epoch, or a validation that is repeated after resuming
            return
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        at = f'epoch {runner.epoch}/{runner.max_epochs}' if by_epoch else f'iteration {runner.iter}/{runner.max_iters}'
        parts = [at, f'loss {loss_of(runner, self._iterations):.4g}']
        if (value := (metrics or {}).get(self.metric or '', -1)) >= 0:
            parts.append(named_score(self.metric or '', value))
            if (half := (metrics or {}).get(f'{self.metric}_50', -1)) >= 0:
                parts.append(f'AP50 {100 * half:.1f}')
            parts += ['the best so far'] if value >= self.best else []
        if self._images and self._trained > self._begun:
            rate = get_world_size() * self._images / (self._trained - self._begun)
            parts.append(f'{rate:.3g} images/s')
        runner.logger.info('  '.join([*parts, tqdm.format_interval(time.time() - self._begun)]))
        self._begin()


def is_shown(record: logging.LogRecord) -> bool:
    """Returns whether a record is on the console: all but the information of the upstream libraries.

    Why training stopped early is on it, too.
    """
    is_upstream = record.pathname.startswith(_UPSTREAM) and record.module != 'early_stopping_hook'
    return record.levelno > logging.INFO or not is_upstream


def console_handlers(logger: logging.Logger) -> list[logging.StreamHandler]:
    """Returns the handlers that write to the console."""
    streams = [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
    return [handler for handler in streams if not isinstance(handler, logging.FileHandler)]


def _has_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def loss_of(runner: Runner, iterations: int) -> float:
    """Returns the mean loss of the latest iterations."""
    losses = runner.message_hub.log_scalars.get('train/loss')
    return math.nan if losses is None else float(losses.mean(iterations))


def named_score(metric: str, value: float) -> str:
    """Returns a metric for people: 'AP 45.7', 'mask AP 45.7', 'AR@100 60.2' or 'top-1 78.2'; COCO's are from 0 to 1."""
    name = metric.rpartition('/')[2]
    if name == 'top1':
        return f'top-1 {value:.1f}'
    iou_type, is_ap, threshold = name.partition('_mAP')
    mask = 'mask ' if iou_type == 'segm' else ''
    return f'{mask}AP{threshold.removeprefix("_")} {100 * value:.1f}' if is_ap else f'{name} {100 * value:.1f}'
