"""Writes the report of a finished training run."""

from pathlib import Path
from typing import Any

from mmengine.dist import master_only
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from tokennorm.registry import HOOKS
from tokennorm.report.from_runner import detections_of, report_on


@HOOKS.register_module()
class ReportHook(Hook):
    """Writes `report.html` and its numbers into the work directory.

    It is the report of the validation that chose the best checkpoint. If that was before a resume, or no best
    checkpoint is kept, it is the report of the last validation.

    A report that cannot be made is left out with a warning of one line: the training run has its checkpoints already.
    """

    priority = 'LOWEST'

    def __init__(self) -> None:
        self.begin = -1
        self.best: tuple[str, dict[str, Any]] | None = None

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Keeps the detections of a best checkpoint, which the checkpoint hook has just written."""
        name = Path(runner.message_hub.runtime_info.get('best_ckpt') or '').name
        if name.endswith((f'epoch_{runner.epoch}.pth', f'iter_{runner.iter}.pth')):
            self.best = name, detections_of(runner, 'val')

    def before_train(self, runner: Runner) -> None:
        """Notes the iteration that a resumed run begins with."""
        self.begin = runner.iter

    @master_only
    def after_train(self, runner: Runner) -> None:
        """Writes the report; mmengine calls it when training ends."""
        if runner.iter == self.begin:
            return  # the run was complete before it was resumed: nothing was validated
        path = Path(runner.work_dir) / 'report.html'
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        end = f'end of training, epoch {runner.epoch}' if by_epoch else f'end of training, iteration {runner.iter}'
        try:
            end, detections = self.best or (end, None)
            report_on(runner, 'val', path, checkpoint=end, detections=detections)
        except Exception as error:
            text = ' '.join(str(error).split())
            runner.logger.warning(f'{path} was not written ({type(error).__name__}: {text:.200})')
        else:
            runner.logger.info(f'The report is {path}')
