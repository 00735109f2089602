"""The fraction of values that Dynamic Tanh bounds, in the logs of a training run."""

from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn

from tokennorm.norms import DynamicTanh
from tokennorm.registry import HOOKS

PREFIX = 'saturation/'
BOUND = 2.0  # of |alpha x|, as in Verma, 2026, arXiv 2604.23434: there tanh is within 4% of its limit


@HOOKS.register_module()
class SaturationHook(Hook):
    """Logs the fraction of values with |alpha x| > 2 in every `DynamicTanh`, as `saturation/LAYER`.

    The scalars go to every visualization backend. In a model without `DynamicTanh` it does nothing.

    Args:
        interval: Training iterations between two entries; the first iteration has one.
    """

    def __init__(self, interval: int = 50) -> None:
        if interval < 1:
            raise ValueError(f'SaturationHook: interval={interval} must be at least 1')
        self.interval = interval

    def before_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self.scalars: dict[str, float] = {}
        self.handles = []
        if runner.iter % self.interval:
            return
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        for name, module in model.named_modules():
            if type(module) is DynamicTanh:
                self.handles.append(module.register_forward_pre_hook(self._measure(f'{PREFIX}{name}')))

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        for handle in self.handles:
            handle.remove()
        if self.scalars:
            runner.visualizer.add_scalars(self.scalars, step=runner.iter + 1)

    def _measure(self, name: str) -> Any:
        def measure(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            self.scalars[name] = (module.alpha * args[0]).detach().abs().gt(BOUND).float().mean().item()

        return measure
