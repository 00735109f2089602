"""Statistics of normalization layers in the logs of a training run: lambda of DTN, saturation of Dynamic Tanh.

The scalars go to every visualization backend (`scalars.json`, TensorBoard, ...), not to the text log. In a model
without such layers the hooks do nothing.
"""

from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from tokennorm.engine.distributed import unwrapped
from tokennorm.norms import DTN, DynamicTanh
from tokennorm.registry import HOOKS

LAMBDA = 'lambda/'  # prefix of its scalars
BOUND = 2.0  # of |alpha x|, as in Verma, 2026, arXiv 2604.23434: there tanh is within 4% of its limit


def dtn_layers(model: nn.Module) -> dict[str, DTN]:
    """Returns the DTN layers of a model by name, in its order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, DTN)}


def lambdas_of(norm: DTN) -> dict[str, Tensor]:
    """Returns lambda per head, (heads,), by 'mean', where it is learned, and 'var'. 1 is LayerNorm's statistics."""
    logits = dict(mean=norm.mean_logit, var=norm.var_logit)
    return {kind: logit.detach().float().sigmoid() for kind, logit in logits.items() if logit is not None}


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
        self.interval = _checked(interval)

    def before_train(self, runner: Runner) -> None:
        self._log(runner, runner.iter)

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        if self.every_n_train_iters(runner, self.interval) or runner.iter + 1 == runner.max_iters:
            self._log(runner, runner.iter + 1)

    def _log(self, runner: Runner, step: int) -> None:
        scalars = {}
        for name, norm in dtn_layers(unwrapped(runner.model)).items():
            for kind, heads in lambdas_of(norm).items():
                statistics = dict(mean=heads.mean(), min=heads.min(), max=heads.max())
                scalars |= {f'{LAMBDA}{name}.{kind}.{key}': value.item() for key, value in statistics.items()}
        if scalars:
            runner.visualizer.add_scalars(scalars, step=step)


@HOOKS.register_module()
class SaturationHook(Hook):
    """Logs the fraction of values with |alpha x| > 2 in every `DynamicTanh`, as `saturation/LAYER`.

    Args:
        interval: Training iterations between two entries; the first iteration has one.
    """

    def __init__(self, interval: int = 50) -> None:
        self.interval = _checked(interval)

    def before_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self.scalars: dict[str, float] = {}
        modules = unwrapped(runner.model).named_modules() if runner.iter % self.interval == 0 else ()
        norms = [(name, module) for name, module in modules if type(module) is DynamicTanh]
        self.handles = [norm.register_forward_pre_hook(self._measure(f'saturation/{name}')) for name, norm in norms]

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        for handle in self.handles:
            handle.remove()
        if self.scalars:
            runner.visualizer.add_scalars(self.scalars, step=runner.iter + 1)

    def _measure(self, name: str) -> Any:
        def measure(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            self.scalars[name] = (module.alpha * args[0]).detach().abs().gt(BOUND).float().mean().item()

        return measure


def _checked(interval: int) -> int:
    if interval < 1:
        raise ValueError(f'interval={interval} must be at least 1')
    return interval
