"""Stops a training whose numbers go wrong, and keeps what is needed to see why."""

import io
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapperDict
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from tokennorm.files import write_atomically
from tokennorm.messages import shorten
from tokennorm.registry import HOOKS


class NonFiniteError(RuntimeError):
    """The loss or the gradient was not finite too often."""


@HOOKS.register_module()
class NonFiniteHook(Hook):
    """Stops at the `max_occurrences`-th iteration, of the whole run, with a loss or a gradient that is not finite.

    An optimizer step with such a gradient is left out, so the weights stay as they were before it, and the buffers,
    such as running statistics, as they were before the batch. Each occurrence is logged with its iteration, the images
    of the batch and the parameters concerned, and leaves `non_finite/iter_N.pth` in the work folder: the batch with its
    ground truth, the weights, and the random state. `python tools/repeat_batch.py CONFIG FILE` runs that iteration
    again. With `accumulative_counts` the file has the batches of the whole step, any of which may be the cause.

    With a loss scaler, a gradient that overflows while the loss is finite is no occurrence: the scaler leaves the step
    out and halves its scale. A loss that is not finite is one, as no scale mends it.

    Beside the losses it reads one number a step from the device, one more before gradients are clipped, and one in
    distributed training, where all processes stop together, each with a file of its own batch.

    Args:
        max_occurrences: Occurrences at which the training stops.

    Raises:
        ValueError: for `max_occurrences` below 1.
    """

    priority = 'HIGH'  # before checkpoints are written

    def __init__(self, max_occurrences: int = 3) -> None:
        if not isinstance(max_occurrences, int) or max_occurrences < 1:
            raise ValueError(f'NonFiniteHook: max_occurrences={max_occurrences} must be a whole number of at least 1')
        self.max_occurrences = max_occurrences
        self.occurrences = 0
        self._bad_params: list[str] = []  # of the gradient of the step that was left out in this iteration
        self._step_is_counted = False  # a batch of the step that gradients are being collected for

    def before_train(self, runner: Runner) -> None:
        """Has the optimizers look at the gradients before each step, and before they are clipped."""
        wrappers = runner.optim_wrapper
        wrappers = list(wrappers.values()) if isinstance(wrappers, OptimWrapperDict) else [wrappers]
        before_step = partial(self._before_step, runner.model)
        self._wrappers = wrappers
        self._batches = deque(maxlen=max(wrapper._accumulative_counts for wrapper in wrappers))
        self._handles = [wrapper.optimizer.register_step_pre_hook(before_step) for wrapper in wrappers]
        self._clipping = {wrapper: wrapper.clip_func for wrapper in wrappers if wrapper.clip_grad_kwargs}
        for wrapper, clip in self._clipping.items():
            wrapper.clip_func = partial(_clip_finite, clip)

    def after_train(self, runner: Runner) -> None:
        """Leaves the optimizers as they were."""
        for handle in self._handles:
            handle.remove()
        for wrapper, clip in self._clipping.items():
            wrapper.clip_func = clip

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Keeps the batch, and the buffers and the random state that its iteration starts from."""
        state = dict(cpu=torch.get_rng_state())
        if torch.cuda.is_available():
            state['cuda'] = torch.cuda.get_rng_state()
        self._batches.append(dict(iteration=runner.iter + 1, data=data_batch, random_state=state))
        self._buffers = [buffer.clone() for buffer in runner.model.buffers()]

    def _before_step(self, model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Takes the gradients away where one is not finite: the step then changes nothing.

        It is not called for steps that a loss scaler leaves out. A fused optimizer's scaler leaves that to the
        optimizer, and shows it by `found_inf`.
        """
        if getattr(optimizer, 'found_inf', None) is not None:
            return
        params = [p for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        if params and _anywhere(not _are_finite([p.grad for p in params])):
            bad = {id(p) for p in params if not p.grad.isfinite().all()}
            self._bad_params += [name for name, p in model.named_parameters() if id(p) in bad]
            self._bad_params = self._bad_params or ['those of another process']
            optimizer.zero_grad(set_to_none=True)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Counts, saves and, at the last occurrence, stops.

        Raises:
            NonFiniteError: at the last occurrence.
        """
        losses = {name: torch.as_tensor(value).item() for name, value in (outputs or {}).items() if 'loss' in name}
        bad_losses = [name for name, value in losses.items() if not math.isfinite(value)]
        bad_params, self._bad_params = self._bad_params, []
        is_loss = _anywhere(bool(bad_losses))
        if is_loss or bad_params:
            for buffer, before in zip(runner.model.buffers(), self._buffers, strict=True):
                buffer.copy_(before)
        is_new = is_loss or (bad_params and not self._step_is_counted)
        is_step = any(wrapper.should_update() for wrapper in self._wrappers)
        self._step_is_counted = not is_step and (self._step_is_counted or is_loss)
        if not is_new:
            return
        self.occurrences += 1
        what = [f'the loss is not finite ({shorten(bad_losses) or "in another process"})'] if is_loss else []
        if bad_params:
            what.append(f'the gradient is not finite ({shorten(bad_params)}), and the step was left out')
        images = [str(path) for batch in self._batches for path in image_paths(batch['data'])]
        path = self._save(runner, ', '.join(what), images, losses)
        config = Path(runner.work_dir, Path(runner.cfg.filename).name) if runner.cfg.filename else 'CONFIG'
        message = (
            f'iteration {runner.iter + 1}: {", ".join(what)}. Images: {shorten(images, most=16)}. Repeat it with '
            f'`python tools/repeat_batch.py {config} {path}`. Occurrence {self.occurrences}'
        )
        if self.occurrences >= self.max_occurrences:
            raise NonFiniteError(f'{message}, at which the training stops')
        runner.logger.warning(f'{message}; the training stops at {self.max_occurrences}')

    def _save(self, runner: Runner, reason: str, images: list[str], losses: dict[str, float]) -> Path:
        """Writes what `tokennorm.engine.resume.repeat_batch` reads."""
        process = f'_process_{get_rank()}' if get_world_size() > 1 else ''
        path = Path(runner.work_dir, 'non_finite', f'iter_{runner.iter + 1}{process}.pth')
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        content = dict(
            iteration=runner.iter + 1,
            reason=reason,
            images=images,
            losses=losses,
            batches=list(self._batches),
            state_dict=model.state_dict(),
        )
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_atomically(path, buffer.getvalue())
        return path


def image_paths(data: Any) -> Iterator[str]:
    """The files that a batch, of whatever nesting, was read from."""
    if isinstance(data, BaseDataElement):
        if 'img_path' in data:
            yield data.img_path
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from image_paths(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from image_paths(value)


def _clip_finite(clip: Callable[..., Tensor | None], params: Sequence[nn.Parameter], **kwargs: Any) -> Tensor | None:
    """Leaves gradients that are not finite as they are: clipping would spread a NaN to every parameter, and the step
    is left out."""
    return clip(params, **kwargs) if _are_finite([p.grad for p in params]) else None


def _are_finite(grads: Sequence[Tensor]) -> bool:
    """By their norm, or where its squares overflow by their largest entry, which takes ten times as long on a CPU."""
    return any(bool(torch.nn.utils.get_total_norm(grads, norm_type=order).isfinite()) for order in (2.0, math.inf))


def _anywhere(flag: bool) -> bool:
    """Whether it is so in any process."""
    if get_world_size() == 1:
        return flag
    device = 'cuda' if torch.distributed.get_backend() == 'nccl' else 'cpu'
    count = torch.tensor(float(flag), device=device)
    all_reduce(count)
    return bool(count)
