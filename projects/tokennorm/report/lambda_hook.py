"""Logs lambda of every DTN layer during training."""

from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from tokennorm.registry import HOOKS
from tokennorm.report.lambdas import ratio_scalars


@HOOKS.register_module()
class LambdaHook(Hook):
    """Logs lambda of Eq. 5 (DTN paper, Fig. 4), the weight of the intra-token statistics, of every DTN layer.

    It logs the mean, minimum and maximum over the heads, for the mean and for the variance, as `lambda/LAYER.mean.max`,
    `lambda/LAYER.var.min` and so on. The scalars go to every visualization backend (`scalars.json`, TensorBoard, ...),
    not to the text log. `tokennorm analyze lambda WORK_DIR` draws them. In a model without DTN it does nothing.

    Args:
        interval: Training iterations between two entries. The first and the last iteration always have one.
    """

    priority = 'BELOW_NORMAL'

    def __init__(self, interval: int = 50) -> None:
        if interval < 1:
            raise ValueError(f'LambdaHook: interval={interval} must be at least 1')
        self.interval = interval

    def before_train(self, runner: Runner) -> None:
        self._log(runner, runner.iter)

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        if self.every_n_train_iters(runner, self.interval) or runner.iter + 1 == runner.max_iters:
            self._log(runner, runner.iter + 1)

    def _log(self, runner: Runner, step: int) -> None:
        scalars = ratio_scalars(runner.model.module if is_model_wrapper(runner.model) else runner.model)
        if scalars:
            runner.visualizer.add_scalars(scalars, step=step)
