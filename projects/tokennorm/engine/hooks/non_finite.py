"""Leaves out training steps whose numbers are not finite, and stops training when that recurs."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from tokennorm.engine.compat import accumulated_batches, clips_by_norm
from tokennorm.messages import shorten
from tokennorm.registry import HOOKS


class NonFiniteError(RuntimeError):
    """The loss or the gradient was not finite too often."""


@HOOKS.register_module()
class NonFiniteHook(Hook):
    """Stops at the `max_occurrences`-th iteration, of the whole run, with a loss or a gradient that is not finite.

    An optimizer step with such a gradient is left out: the weights stay as they were before it, and buffers such as
    running statistics as they were before the batch. Each occurrence is logged with its iteration, the images of the
    batch and the parameters concerned. With `accumulative_counts` it names the images of the whole step.

    With a loss scaler, a gradient that overflows while the loss is finite is not an occurrence: the scaler leaves the
    step out and halves its scale. A loss that is not finite is one, since no scale repairs it.

    The hook reads two numbers per iteration from the device: the loss, and the norm of the gradient, which clipping by
    norm uses as well. In distributed training all ranks stop together.

    Args:
        max_occurrences: Occurrences at which training stops.

    Raises:
        ValueError: for `max_occurrences` below 1.
    """

    priority = 'HIGH'  # before checkpoints are written

    def __init__(self, max_occurrences: int = 3) -> None:
        if not isinstance(max_occurrences, int) or max_occurrences < 1:
            raise ValueError(f'NonFiniteHook: max_occurrences={max_occurrences} must be an integer of at least 1')
        self.max_occurrences = max_occurrences
        self.occurrences = 0
        self._bad_params: list[str] = []  # of the gradient of the step that was left out in this iteration
        self._step_is_counted = False  # a batch of the step that gradients are being collected for
        self._checked: dict[torch.optim.Optimizer, bool] = {}  # whether the gradient of this step is finite

    def before_train(self, runner: Runner) -> None:
        """Has the optimizers check the gradients before each step, or when they are clipped."""
        wrappers = runner.optim_wrapper
        self._wrappers = list(wrappers.values()) if isinstance(wrappers, OptimWrapperDict) else [wrappers]
        self._batches = deque(maxlen=max(map(accumulated_batches, self._wrappers)))
        # Those that training may change, such as running statistics, and not tables of indices.
        self._buffers = [buffer for buffer in runner.model.buffers() if buffer.is_floating_point() or not buffer.ndim]
        before_step = partial(self._before_step, runner.model)
        self._handles = [wrapper.optimizer.register_step_pre_hook(before_step) for wrapper in self._wrappers]
        self._clipping = {wrapper: wrapper.clip_func for wrapper in self._wrappers if wrapper.clip_grad_kwargs}
        for wrapper in self._clipping:
            wrapper.clip_func = partial(self._clip, wrapper)

    def after_train(self, runner: Runner) -> None:
        """Leaves the optimizers as they were."""
        for handle in self._handles:
            handle.remove()
        for wrapper, clip in self._clipping.items():
            wrapper.clip_func = clip

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Notes the batch, and the buffers that its iteration starts from."""
        self._batches.append(data_batch)
        self._checked.clear()
        self._copies = [buffer.clone() for buffer in self._buffers]

    def _clip(self, wrapper: OptimWrapper, params: Sequence[nn.Parameter], **kwargs: Any) -> Tensor | None:
        """Clips gradients unless one is not finite: a NaN would spread to every parameter, and the step is left out."""
        params = list(params)
        grads = [p.grad for p in params]
        if not clips_by_norm(self._clipping[wrapper]):
            finite = self._checked[wrapper.optimizer] = _are_finite(grads)
            return self._clipping[wrapper](params, **kwargs) if finite else None
        max_norm = kwargs.pop('max_norm')
        kwargs.pop('error_if_nonfinite', None)
        norm = torch.nn.utils.get_total_norm(grads, **kwargs)
        finite = self._checked[wrapper.optimizer] = math.isfinite(norm) or _are_finite(grads, orders=[math.inf])
        if not finite:
            return None
        torch.nn.utils.clip_grads_with_norm_(params, max_norm, norm, kwargs.get('foreach'))
        return norm

    def _before_step(self, model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Removes the gradients if one is not finite, so that the step changes nothing.

        A loss scaler that leaves a step out does not call it. A fused optimizer's scaler leaves that to the optimizer,
        and shows it by `found_inf`.
        """
        if getattr(optimizer, 'found_inf', None) is not None:
            return
        params = [p for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        if not params:
            return
        finite = self._checked.pop(optimizer, None)
        if finite is None:
            finite = _are_finite([p.grad for p in params])
        if _anywhere(not finite):
            bad = {id(p) for p in params if not p.grad.isfinite().all()}
            self._bad_params += [name for name, p in model.named_parameters() if id(p) in bad]
            self._bad_params = self._bad_params or ['those of another rank']
            optimizer.zero_grad(set_to_none=True)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Counts and, at the last occurrence, raises `NonFiniteError`."""
        bad_losses = _bad_losses(outputs or {})
        bad_params, self._bad_params = self._bad_params, []
        is_loss = _anywhere(bool(bad_losses))
        if is_loss or bad_params:
            with torch.no_grad():
                for buffer, copy in zip(self._buffers, self._copies, strict=True):
                    buffer.copy_(copy)
        is_new = is_loss or (bad_params and not self._step_is_counted)
        is_step = any(wrapper.should_update() for wrapper in self._wrappers)
        self._step_is_counted = not is_step and (self._step_is_counted or is_loss)
        if not is_new:
            return
        self.occurrences += 1
        what = [f'the loss is not finite ({shorten(bad_losses) or "on another rank"})'] if is_loss else []
        if bad_params:
            what.append(f'the gradient is not finite ({shorten(bad_params)}), and the step was left out')
        images = [str(path) for batch in self._batches for path in image_paths(batch)]
        message = (
            f'iteration {runner.iter + 1}: {", ".join(what)}. Images: {shorten(images, most=16)}. '
            f'Occurrence {self.occurrences}'
        )
        if self.occurrences >= self.max_occurrences:
            raise NonFiniteError(f'{message}, at which training stops')
        runner.logger.warning(f'{message}; training stops at {self.max_occurrences}')


def image_paths(data: Any) -> Iterator[str]:
    """Yields the files that a batch, of any nesting, was read from."""
    if isinstance(data, BaseDataElement):
        if 'img_path' in data:
            yield data.img_path
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from image_paths(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from image_paths(value)


def _bad_losses(outputs: Mapping[str, Any]) -> list[str]:
    """The names of losses that are not finite. The sum, `loss`, shows whether there is one."""
    losses = {name: value for name, value in outputs.items() if 'loss' in name}
    if 'loss' in losses and _is_finite(losses['loss']):
        return []
    return [name for name, value in losses.items() if not _is_finite(value)]


def _is_finite(value: Any) -> bool:
    return math.isfinite(torch.as_tensor(value).item())


def _are_finite(grads: Sequence[Tensor], orders: Sequence[float] = (2.0, math.inf)) -> bool:
    """By their norm, or where its squares overflow by their largest entry, which takes ten times as long on a CPU."""
    return any(math.isfinite(torch.nn.utils.get_total_norm(grads, norm_type=order)) for order in orders)


def _anywhere(flag: bool) -> bool:
    """Returns whether it is true on any rank."""
    if get_world_size() == 1:
        return flag
    device = 'cuda' if torch.distributed.get_backend() == 'nccl' else 'cpu'
    count = torch.tensor(float(flag), device=device)
    all_reduce(count)
    return bool(count)
