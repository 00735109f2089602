"""The report of a runner of mmengine that has evaluated a detector, and the hook that writes it while it trains."""

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process, master_only
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from tokennorm.base.messages import UserError, counted
from tokennorm.registry import HOOKS
from tokennorm.report.page import (
    IOU_TYPES,
    Running,
    end_running,
    format_points,
    is_running,
    recommended_thresholds,
    write_report,
)

MOST_TIME = 0.05  # of training, for the pages that are written after validations


@HOOKS.register_module()
class ReportHook(Hook):
    """Writes `report.html` after each validation, and with all its parts and numbers after training.

    It is the report of the validation that chose the best checkpoint, or of the last one where that was before a resume
    or no best checkpoint is kept. A report that cannot be made is left out with a warning. While training runs, a page
    is left out if it would take more than a twentieth of the time.
    """

    priority = 'LOWEST'

    def __init__(self) -> None:
        self.best: tuple[str, dict[str, Any]] | None = None
        self.begin, self.began = -1, 0.0  # iteration and time of the beginning, or of the resume
        self.written, self.cost = 0.0, 0.0  # time at which the latest page was written, and seconds that this took
        self.validated = 0.0  # time of the latest validation
        self.is_validating = False

    def before_train(self, runner: Runner) -> None:
        self.begin, self.began = runner.iter, time.time()
        self.written = self.validated = self.began

    def before_val(self, runner: Runner) -> None:
        self.is_validating = True

    def after_val(self, runner: Runner) -> None:
        self.is_validating = False

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Notes the recommended thresholds in the checkpoint that a validation has chosen, as `publish` does."""
        if self.is_validating and getattr(metric := _metric(runner, 'val'), 'detections', {}):
            try:
                checkpoint['meta']['thresholds'] = recommended_thresholds(
                    metric.ann_file, metric.detections, metric.category_ids, metric.max_detections, metric.img_ids
                )
            except Exception as error:
                runner.logger.debug(f'no recommended thresholds ({type(error).__name__}: {error})')

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Keeps the detections of a best checkpoint, which the checkpoint hook has just written."""
        name = Path(runner.message_hub.runtime_info.get('best_ckpt') or '').name
        hooks = [hook for hook in runner.hooks if isinstance(hook, CheckpointHook)]
        if any(name.endswith(one.filename_tmpl.format(runner.epoch if one.by_epoch else runner.iter)) for one in hooks):
            self.best = name, getattr(_metric(runner, 'val'), 'detections', {})  # none without tokennorm.CocoMetric
        if self.begin >= 0 and is_main_process():
            self._write_while_running(runner)

    @master_only
    def after_train(self, runner: Runner) -> None:
        """Writes the report; mmengine calls it when training ends."""
        path = Path(runner.work_dir) / 'report.html'
        if runner.iter == self.begin and path.is_file() and not is_running(path):
            return  # the run was complete before it was resumed: nothing was validated
        try:
            if runner.iter == self.begin and self.best is None:  # it was complete but for its report
                runner.val_loop.run()
            end, detections = self.best or (f'end of training, iteration {runner.iter}', None)
            results = report_on(runner, 'val', path, end, detections, self._training(runner))['results']
            aps = ', '.join(
                f'{IOU_TYPES[kind]} AP {format_points(results[kind]["summary"]["mAP"])}' for kind in results
            )
        except Exception as error:
            text = ' '.join(str(error).split())
            runner.logger.warning(f'{path} was not written ({type(error).__name__}: {text:.200})')
        else:
            runner.logger.info(f'The report is {path}: {aps} (0 to 100) of {end}')

    @master_only
    def on_exit(self, runner: Runner) -> None:
        """Has the page say that training ended, if an error or an interruption ended it."""
        with suppress(OSError):  # a full disk, which ended training
            end_running(Path(runner.work_dir) / 'report.html')

    def _write_while_running(self, runner: Runner) -> None:
        """Writes the page of a run that has not ended. The last one has a warning if there cannot be any."""
        began, interval = time.time(), time.time() - self.validated
        self.validated = began
        loop = runner.train_loop
        if self.cost > MOST_TIME * (began - self.written) or loop.iter >= loop.max_iters:  # the whole report follows
            return
        by_epoch = isinstance(loop, EpochBasedTrainLoop)
        at = f'epoch {loop.epoch} of {loop.max_epochs}' if by_epoch else f'iteration {loop.iter} of {loop.max_iters}'
        name, detections = self.best or (f'validation after {at.partition(" of ")[0]}', None)
        path, state = Path(runner.work_dir) / 'report.html', Running(at, interval)
        try:
            report_on(runner, 'val', path, name, detections, self._training(runner), state)
        except Exception as error:
            runner.logger.debug(f'{path} was not written ({type(error).__name__}: {error})')
            self.cost = math.inf
        else:
            self.written, self.cost = time.time(), time.time() - began

    def _training(self, runner: Runner) -> str:
        images = len(runner.train_dataloader.dataset)
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        length = counted(runner.epoch, 'epoch') if by_epoch else counted(runner.iter, 'iteration')
        since = f' since it was resumed at iteration {self.begin}' if self.begin else ''
        minutes = (time.time() - self.began) / 60
        return f'Trained on {counted(images, "image")} for {length}, in {minutes:.1f} min{since}'


def report_on(
    runner: Runner,
    split: str,
    path: str | Path,
    checkpoint: str | None = None,
    detections: dict | None = None,
    training: str = '',
    running: Running | None = None,
) -> dict[str, Any]:
    """Writes the report of a runner's last evaluation, or of the detections of an earlier one."""
    loop, metric = getattr(runner, f'{split}_loop'), _metric(runner, split)
    if metric is None:
        raise UserError(
            f'{split}_evaluator is not a tokennorm.CocoMetric, which `tokennorm train` sets; '
            '`tokennorm test CONFIG WORK_DIR --report` writes a report. There is none for classifiers'
        )
    if not metric.detections or metric.ann_file is None:
        raise UserError(f'the {split} data was not evaluated against an annotation file')
    dataset = loop.dataloader.dataset
    while not hasattr(dataset, 'data_prefix') and hasattr(dataset, 'dataset'):
        dataset = dataset.dataset
    return write_report(
        path,
        ann_file=metric.ann_file,
        detections=detections or metric.detections,
        image_dir=getattr(dataset, 'data_prefix', {}).get('img'),
        category_ids=metric.category_ids,
        work_dir=runner.work_dir,
        cfg=runner.cfg,
        checkpoint=checkpoint,
        max_detections=metric.max_detections,
        training=training,
        image_ids=metric.img_ids,
        running=running,
    )


def _metric(runner: Runner, split: str) -> Any:
    loop = getattr(runner, f'{split}_loop')
    metrics = [] if loop is None else loop.evaluator.metrics
    return next((metric for metric in metrics if hasattr(metric, 'detections')), None)
