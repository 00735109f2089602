"""Leaves out optimizer steps whose gradient is not finite, and stops training when that recurs."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapperDict
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from tokennorm.messages import shorten
from tokennorm.registry import HOOKS


class NonFiniteError(RuntimeError):
    """The loss or the gradient was not finite several times in a row."""


@HOOKS.register_module()
class NonFiniteHook(Hook):
    """Stops at `max_occurrences` iterations in a row with a loss or a gradient that is not finite.

    The optimizer step of such an iteration is left out, so the weights stay as they were. Each occurrence is logged
    with the images of the batch. A loss scaler leaves out steps itself: an overflow with a finite loss is not an
    occurrence. All ranks stop together.

    Raises:
        ValueError: for `max_occurrences` below 1.
    """

    priority = 'HIGH'  # before checkpoints are written

    def __init__(self, max_occurrences: int = 3) -> None:
        if not isinstance(max_occurrences, int) or max_occurrences < 1:
            raise ValueError(f'NonFiniteHook: max_occurrences={max_occurrences} must be an integer of at least 1')
        self.max_occurrences, self.in_a_row = max_occurrences, 0
        self._steps: list[bool] = []  # of this iteration: whether each was taken

    def before_train(self, runner: Runner) -> None:
        """Has the optimizers check their gradients before each step."""
        wrappers = runner.optim_wrapper
        for wrapper in wrappers.values() if isinstance(wrappers, OptimWrapperDict) else [wrappers]:
            wrapper.optimizer.register_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if getattr(optimizer, 'found_inf', None) is not None:  # a loss scaler has looked already
            return
        grads = [p.grad for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        finite = math.isfinite(torch.nn.utils.get_total_norm(grads)) or all(g.isfinite().all() for g in grads)
        self._steps.append(finite)
        if not finite:
            optimizer.zero_grad(set_to_none=True)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Counts and, at the last occurrence, raises `NonFiniteError`."""
        steps, self._steps = self._steps, []
        bad_loss = _anywhere(not torch.as_tensor((outputs or {}).get('loss', 0.0)).detach().isfinite())
        if not bad_loss and all(steps):
            self.in_a_row = 0 if steps else self.in_a_row
            return
        self.in_a_row += 1
        message = (
            f'iteration {runner.iter + 1}: the {"loss" if bad_loss else "gradient"} is not finite. Images: '
            f'{shorten(list(image_paths(data_batch)), most=16)}. Occurrence {self.in_a_row} in a row'
        )
        if self.in_a_row >= self.max_occurrences:
            raise NonFiniteError(f'{message}, at which training stops')
        runner.logger.warning(f'{message}; training stops at {self.max_occurrences}')


def image_paths(data: Any) -> Iterator[str]:
    """Yields the files that a batch, of any nesting, was read from."""
    if isinstance(data, BaseDataElement):
        yield from [str(data.img_path)] if 'img_path' in data else []
    elif isinstance(data, Mapping | list | tuple):
        for value in data.values() if isinstance(data, Mapping) else data:
            yield from image_paths(value)


def _anywhere(flag: bool) -> bool:
    """Returns whether it is true on any rank."""
    count = torch.tensor(float(flag))
    all_reduce(count)
    return bool(count)
