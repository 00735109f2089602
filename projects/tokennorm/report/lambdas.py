"""lambda of Eq. 5, the learned weight of the intra-token statistics (DTN paper, Fig. 4): of a model, and as a training
run logged it."""

from pathlib import Path
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn

from tokennorm.norms import DTN
from tokennorm.registry import HOOKS
from tokennorm.report.scalars import Curve, read_scalars

PREFIX = 'lambda/'


def dtn_layers(model: nn.Module) -> dict[str, DTN]:
    """The DTN layers of a model by name, in its order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, DTN)}


def ratios_of(norm: DTN) -> dict[str, Tensor]:
    """lambda of each head for the 'mean', where it is learned, and for the 'var', (N,). 1 is LayerNorm's statistics."""
    logits = dict(mean=norm.mean_logit, var=norm.var_logit)
    return {kind: logit.detach().float().sigmoid() for kind, logit in logits.items() if logit is not None}


def read_ratio_curves(work_dir: Path) -> dict[str, Curve]:
    """Returns the scalars that `LambdaHook` logged, by their names without the prefix."""
    scalars = read_scalars(work_dir)
    return {name.removeprefix(PREFIX): curve for name, curve in scalars.items() if name.startswith(PREFIX)}


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
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        scalars = {}
        for name, norm in dtn_layers(model).items():
            for kind, ratios in ratios_of(norm).items():
                found = dict(mean=ratios.mean(), min=ratios.min(), max=ratios.max())
                scalars |= {f'{PREFIX}{name}.{kind}.{key}': value.item() for key, value in found.items()}
        if scalars:
            runner.visualizer.add_scalars(scalars, step=step)
