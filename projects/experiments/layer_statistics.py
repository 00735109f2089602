"""Lambda of DTN in the logs of a training run.

The scalars go to every visualization backend (`scalars.json`, TensorBoard, ...), not to the text log. In a model
without such layers the hook does nothing.
"""

from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from tokennorm.engine.distributed import unwrapped
from tokennorm.norms import DTN
from tokennorm.registry import HOOKS

LAMBDA = 'lambda/'  # prefix of its scalars


def dtn_layers(model: nn.Module) -> dict[str, DTN]:
    """Returns the DTN layers of a model by name, in its order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, DTN)}


def lambdas_of(norm: DTN) -> dict[str, Tensor]:
    """Returns lambda per head, (heads,), by 'mean', where it is learned, and 'var'. 1 is LayerNorm's statistics."""
    logits = dict(mean=norm.mean_logit, var=norm.var_logit)
    return {name: logit.detach().float().sigmoid() for name, logit in logits.items() if logit is not None}


@HOOKS.register_module()
class LambdaHook(Hook):
    """Logs lambda of Eq. 5 (DTN paper, Fig. 4), the weight of the intra-token statistics, of every DTN layer.

    It logs the mean, minimum and maximum over the heads, for the mean and for the variance, as `lambda/LAYER.mean.max`,
    `lambda/LAYER.var.min` and so on.

    Args:
        interval: Training iterations between two entries. The first and the last iteration always have one.
    """

    priority = 'BELOW_NORMAL'

    def __init__(self, interval: int = 50) -> None:
        if interval < 1:
            raise ValueError(f'interval={interval} must be at least 1')
        self.interval = interval

    def before_train(self, runner: Runner) -> None:
        self._log(runner, runner.iter)

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        if self.every_n_train_iters(runner, self.interval) or runner.iter + 1 == runner.max_iters:
            self._log(runner, runner.iter + 1)

    def _log(self, runner: Runner, step: int) -> None:
        scalars = {}
        for layer, norm in dtn_layers(unwrapped(runner.model)).items():
            for name, heads in lambdas_of(norm).items():
                statistics = dict(mean=heads.mean(), min=heads.min(), max=heads.max())
                scalars |= {f'{LAMBDA}{layer}.{name}.{key}': value.item() for key, value in statistics.items()}
        if scalars:
            runner.visualizer.add_scalars(scalars, step=step)
