"""What people see while a model trains: a progress bar in a terminal, and one line per epoch everywhere."""

import atexit
import logging
import math
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tokennorm.environment import FORKS
from tokennorm.registry import HOOKS

REFRESH = 0.25  # seconds between two refreshes of the bar, which the training loop does: there is no thread
WINDOW = 50  # iterations over which the loss and the time of the bar are averaged
_UPSTREAM = tuple(f'{Path(spec.origin).parent}{os.sep}' for name in FORKS if (spec := find_spec(name)) and spec.origin)


@HOOKS.register_module()
class ProgressHook(Hook):
    """Shows a bar with epoch, loss, AP and the time left where the output is a terminal, and logs one line per epoch.

    While there is a bar, the console shows no routine lines of the upstream libraries; warnings and other lines appear
    above it. The log file has all of them. Training by iterations has one line per validation instead.

    Args:
        metric: Name of the metric that chooses the best checkpoint, such as 'coco/bbox_mAP'; None shows none.
        bar: Whether to show a bar; None shows one in a terminal.
    """

    priority = 'LOWEST'  # the best checkpoint is known

    def __init__(self, metric: str | None = None, bar: bool | None = None) -> None:
        self.metric, self.bar = metric, bar
        self.latest, self.best = math.nan, -math.inf  # of the metric
        self.display: Display | None = None
        self._begun = time.time()  # of the epoch
        self._iterations = 0  # of the epoch, in this process
        self._validation = 0.0  # seconds of the latest one
        self._unwritten = False  # the line of the epoch that has ended

    def before_train(self, runner: Runner) -> None:
        """Opens the bar, in rank 0."""
        noted = runner.message_hub.runtime_info.get('best_score')  # of the run that is resumed
        self.best = max(self.best, float(noted)) if isinstance(noted, int | float) else self.best
        if is_main_process() and (has_terminal() if self.bar is None else self.bar):
            self.display = Display(runner.logger)
            self._show(runner, 0)

    def before_train_epoch(self, runner: Runner) -> None:
        self._write_line(runner)
        self._begun, self._iterations = time.time(), 0

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._iterations += 1
        if self.display is not None and self.display.is_due():
            self._show(runner, 1)

    def after_train_epoch(self, runner: Runner) -> None:
        self._unwritten = isinstance(runner.train_loop, EpochBasedTrainLoop)

    def before_val(self, runner: Runner) -> None:
        self._validation_begun = time.time()

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if self.display is not None and self.display.is_due():
            self.display.show('Validation', batch_idx + 1, len(runner.val_dataloader), self._score())

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Notes the metric, and writes the line of the epoch."""
        value = float((metrics or {}).get(self.metric or '', math.nan))
        if value >= 0:  # COCO's is -1 where no object counts
            self.latest, self.best = value, max(self.best, value)
        self._validation = time.time() - getattr(self, '_validation_begun', time.time())
        if self._iterations:  # not of a validation that is repeated before a resumed run trains
            self._unwritten = True
            self._write_line(runner, metrics)

    def after_train(self, runner: Runner) -> None:
        self._write_line(runner)
        self.on_exit(runner)

    def on_exit(self, runner: Runner) -> None:
        """Closes the bar, also when training ends by an error."""
        if self.display is not None:
            self.display.close()
            self.display = None

    # ---- texts ----

    def _show(self, runner: Runner, done: int) -> None:
        """Shows the iterations of the epoch, or of the run where it has no epochs; `done` counts the current one."""
        loop, display = runner.train_loop, self.display
        if display is None:
            return
        by_epoch = isinstance(loop, EpochBasedTrainLoop)
        length = len(runner.train_dataloader) if by_epoch else loop.max_iters
        step = loop.iter + done
        at = min(max(step - loop.epoch * length, 0), length) if by_epoch else step
        title = f'Epoch {min(loop.epoch + 1, loop.max_epochs)}/{loop.max_epochs}' if by_epoch else 'Training'
        left = self._seconds_left(runner, step)
        parts = [f'loss {self._loss(runner, WINDOW):.3g}' if done else '', self._score()]
        parts.append(f'{duration(left)} left' if left is not None else '')
        display.show(title, at, length, '  '.join(filter(None, parts)))

    def _write_line(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Logs the line of an epoch that has ended."""
        if not self._unwritten or not self._iterations:
            return
        self._unwritten, loop = False, runner.train_loop
        by_epoch = isinstance(loop, EpochBasedTrainLoop)
        at = f'epoch {loop.epoch}/{loop.max_epochs}' if by_epoch else f'iteration {loop.iter}/{loop.max_iters}'
        parts = [at, f'loss {self._loss(runner, self._iterations):.4g}', *self._results(metrics or {})]
        parts.append(duration(time.time() - self._begun))
        runner.logger.info('  '.join(parts))
        if not by_epoch:
            self._begun, self._iterations = time.time(), 0

    def _results(self, metrics: dict[str, float]) -> list[str]:
        """The metric, AP50 beside AP, and whether it is the best one so far."""
        if self.metric is None or not metrics.get(self.metric, -1) >= 0:
            return []
        texts = [named_score(self.metric, metrics[self.metric])]
        if (half := metrics.get(f'{self.metric}_50', -1)) >= 0:
            texts.append(f'AP50 {100 * half:.1f}')
        return [*texts, 'the best so far'] if metrics[self.metric] >= self.best else texts

    def _score(self) -> str:
        """The latest metric, and the best one where that is higher."""
        if self.metric is None or math.isnan(self.latest):
            return ''
        shown = named_score(self.metric, self.latest)
        return shown if self.best <= self.latest else f'{shown}, best {named_score(self.metric, self.best).split()[-1]}'

    def _loss(self, runner: Runner, window: int) -> float:
        losses = runner.message_hub.log_scalars.get('train/loss')
        return math.nan if losses is None else float(losses.mean(window))

    def _seconds_left(self, runner: Runner, step: int) -> float | None:
        """By the time of the latest iterations, and of the latest validation; None before the first iteration."""
        times, loop = runner.message_hub.log_scalars.get('train/time'), runner.train_loop
        if times is None or not self._iterations:
            return None
        seconds = float(times.mean(min(WINDOW, self._iterations))) * (loop.max_iters - step)
        if runner.val_loop is None:
            return seconds
        done, end = (loop.epoch, loop.max_epochs) if isinstance(loop, EpochBasedTrainLoop) else (step, loop.max_iters)
        return seconds + self._validation * validations_left(done, end, loop.val_begin, loop.val_interval)


class Display:
    """A bar in the last line of a terminal. The console lines of a logger appear above it."""

    def __init__(self, logger: logging.Logger, console: Console | None = None) -> None:
        console = console or Console()  # rich's global one may have been made by another library
        columns = TextColumn('{task.description}'), BarColumn(bar_width=None)
        counts = TextColumn('{task.completed:.0f}/{task.total:.0f}'), TextColumn('{task.fields[text]}', markup=False)
        self.progress = Progress(*columns, *counts, console=console, auto_refresh=False, transient=True, expand=True)
        self.task = self.progress.add_task('', total=1, text='')
        self.progress.start()
        self.progress.console.show_cursor(True)  # a killed process cannot show a hidden one again
        self.handlers = [(one, one.stream, one.formatter) for one in console_handlers(logger)]
        for handler, *_ in self.handlers:
            handler.addFilter(is_shown)
            handler.setFormatter(Plain(handler.formatter))
            handler.setStream(sys.stdout)  # rich's, which writes above the bar
        self._refreshed = 0.0
        atexit.register(self.close)  # where another program's runner ends by an error

    def is_due(self) -> bool:
        return time.monotonic() - self._refreshed >= REFRESH

    def show(self, title: str, done: int, total: int, text: str) -> None:
        self.progress.update(self.task, description=title, completed=done, total=total, text=text)
        self.progress.refresh()
        self._refreshed = time.monotonic()

    def close(self) -> None:
        """Removes the bar; the console's lines are as before. A second call does nothing."""
        for handler, stream, formatter in self.handlers:
            handler.flush()
            handler.removeFilter(is_shown)
            handler.setFormatter(formatter)
            handler.setStream(stream)
        self.handlers = []
        self.progress.stop()
        atexit.unregister(self.close)


class Plain(logging.Formatter):
    """Information as its text only. Warnings and errors as another formatter writes them."""

    def __init__(self, other: logging.Formatter | None) -> None:
        super().__init__()
        self.other = other or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if record.levelno <= logging.INFO else self.other.format(record)


def is_shown(record: logging.LogRecord) -> bool:
    """Returns whether a record appears above the bar: all but the information of the upstream libraries."""
    return record.levelno > logging.INFO or not record.pathname.startswith(_UPSTREAM)


def console_handlers(logger: logging.Logger) -> list[logging.StreamHandler]:
    """Returns the handlers that write to the console."""
    streams = [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
    return [handler for handler in streams if not isinstance(handler, logging.FileHandler)]


def has_terminal() -> bool:
    """Returns whether the output is a terminal in which a line can be replaced; a notebook is none."""
    return sys.stdout is not None and sys.stdout.isatty() and Console().is_interactive


def validations_left(done: int, end: int, begin: int, interval: int) -> int:
    """Returns the number of validations after `done` of `end` epochs, or iterations, as mmengine counts them."""
    regular = end // interval - max(done, begin - 1) // interval
    return max(0, regular) + (end % interval != 0 and done < end)


def named_score(metric: str, value: float) -> str:
    """Returns a metric for people: 'AP 45.7', 'mask AP 45.7', 'AR@100 60.2' or 'top-1 78.2'; COCO's are from 0 to 1."""
    name = metric.rpartition('/')[2]
    if name == 'top1':
        return f'top-1 {value:.1f}'
    kind, is_ap, threshold = name.partition('_mAP')
    shown = f'{"mask " * (kind == "segm")}AP{threshold.removeprefix("_")}' if is_ap else name
    return f'{shown} {100 * value:.1f}'


def duration(seconds: float) -> str:
    """Returns a time for people: '42 s', '12:05 min' or '3:07 h'."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f'{seconds} s'
    minutes, rest = divmod(seconds, 60)
    return f'{minutes}:{rest:02d} min' if minutes < 60 else f'{minutes // 60}:{minutes % 60:02d} h'
