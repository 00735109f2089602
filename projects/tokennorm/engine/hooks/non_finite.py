"""Stops training whose loss or gradient is not finite."""

import math
from functools import partial
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from mmengine.utils import apply_to

from tokennorm.base.messages import UserError, shorten
from tokennorm.registry import HOOKS


class NonFiniteError(UserError):
    """The loss or the gradient was not finite several times in a row."""


@HOOKS.register_module()
class NonFiniteHook(Hook):
    """Stops at `max_occurrences` iterations in a row with a loss or a gradient that is not finite.

    The optimizer step of such an iteration is left out, and the images of its batch are logged. An overflow that a loss
    scaler handles is not an occurrence. All ranks stop together.
    """

    priority = 'HIGH'  # before checkpoints are written

    def __init__(self, max_occurrences: int = 3) -> None:
        self.max_occurrences, self.in_a_row = max_occurrences, 0
        self._steps: list[bool] = []  # of this iteration: whether each was taken

    def before_train(self, runner: Runner) -> None:
        if hasattr(runner.optim_wrapper, 'optimizer'):  # of several optimizers only the loss is checked
            before_step = partial(self._before_step, runner.optim_wrapper)
            runner.optim_wrapper.optimizer.register_step_pre_hook(before_step)

    def _before_step(self, wrapper: OptimWrapper, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        clipped = wrapper.clip_grad_kwargs and wrapper.clip_func is torch.nn.utils.clip_grad_norm_
        logged = clipped and wrapper.message_hub.log_scalars.get(f'train/{wrapper.grad_name}')
        if getattr(optimizer, 'found_inf', None) is not None:  # a loss scaler has looked already
            return
        if logged and math.isfinite(logged.current()):  # the norm before clipping, just now
            self._steps.append(True)
        else:
            grads = [p.grad for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
            norms = (torch.nn.utils.get_total_norm(grads, norm_type=p) for p in (2, math.inf))  # 2 is fast on a CPU
            self._steps.append(any(math.isfinite(norm) for norm in norms))  # squares may overflow
            if not self._steps[-1]:
                optimizer.zero_grad(set_to_none=True)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Raises an error after too many steps in a row without a finite loss and finite gradients, on any rank."""
        steps, self._steps = self._steps, []
        bad_loss = 1 - torch.as_tensor((outputs or {}).get('loss', 0.0)).detach().isfinite().float()
        all_reduce(bad_loss)
        if not bad_loss and all(steps):
            self.in_a_row = 0 if steps else self.in_a_row
            return
        self.in_a_row += 1
        samples: list[BaseDataElement] = []
        apply_to(data_batch, lambda x: isinstance(x, BaseDataElement), samples.append)
        images = [x.img_path for x in samples if 'img_path' in x]
        message = f'iteration {runner.iter + 1}: the {"loss" if bad_loss else "gradient"} is not finite. Images: '
        message += f'{shorten(images, most=16)}. Occurrence {self.in_a_row} in a row'
        if self.in_a_row >= self.max_occurrences:
            raise NonFiniteError(f'{message}, at which training stops')
        runner.logger.warning(f'{message}; training stops at {self.max_occurrences}')
