"""Training on a CPU in less time, with the same results up to float32's rounding."""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.optim import Optimizer

from tokennorm.backbones.base import Backbone
from tokennorm.engine.distributed import unwrapped
from tokennorm.environment import check_mmcv_ops


class CPUSpeedHook(Hook):
    """Replaces `forward` of some modules, and the groups of the optimizer in a step, as long as training lasts.

    Parameters, checkpoints and the optimizer's state keep their names and shapes. `build_runner` adds it on a CPU.

    - A convolutional backbone computes with channels last, and its frozen batch norms inside of the convolutions before
      them. Feature maps keep their memory format.
    - Gradients of the weights of large depthwise convolutions are convolutions themselves.
    - Parameters with equal settings are stepped together, in PyTorch's optimizers.
    """

    priority = 'LOW'  # the weights are loaded

    def __init__(self) -> None:
        self._replaced: list[nn.Module] = []
        self._handles: list[Any] = []

    def before_train(self, runner: Runner) -> None:
        model = unwrapped(runner.model)
        for conv in filter(has_slow_gradient, model.modules()):
            self._replace(conv, partial(depthwise, conv))
        backbone = getattr(model, 'backbone', None)
        if isinstance(backbone, Backbone) and backbone.autocast_dtype is None:
            layout = torch.channels_last if is_convolutional(backbone) else torch.preserve_format
            for conv, norm in frozen_norms(backbone) if is_convolutional(backbone) else ():
                self._replace(conv, folded(conv, norm).forward)
                self._replace(norm, getattr(norm, 'act', nn.Identity()).forward)
            compiled = check_mmcv_ops() == 'compiled in mmcv'  # its RoIAlign reads other formats wrongly
            self._replace(backbone, partial(backbone_forward, backbone, layout=layout, contiguous=compiled))
        optimizer = getattr(runner.optim_wrapper, 'optimizer', None)  # not of several optimizers
        if type(optimizer).__module__.startswith('torch.optim.'):  # those compute each element by itself
            self._handles += step_groups_together(optimizer)

    def after_train(self, runner: Runner) -> None:
        self.on_exit(runner)

    def on_exit(self, runner: Runner) -> None:
        """Restores the modules and the optimizer, also when training ends by an error."""
        for module in self._replaced:
            del module.forward
        for handle in self._handles:
            handle.remove()
        self._replaced, self._handles = [], []

    def _replace(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        module.forward = forward  # of this object; the class's is back when it is deleted
        self._replaced.append(module)


def is_convolutional(module: nn.Module) -> bool:
    """Returns whether all weights but those of norms are of convolutions of images, and whether there are any."""
    owners = {type(m) for m in module.modules() for p in m.parameters(recurse=False) if p.dim() > 1}
    return bool(owners) and all(issubclass(owner, nn.Conv2d) for owner in owners)


def backbone_forward(
    backbone: Backbone, x: Tensor, layout: torch.memory_format, contiguous: bool
) -> tuple[Tensor, ...]:
    """`Backbone.forward` of images in a memory format, which feature maps keep, unless they must be `contiguous`."""
    x = x if layout == torch.preserve_format else x.contiguous(memory_format=layout)
    outs = backbone._outputs(x)
    return tuple(out.contiguous() for out in outs) if contiguous else outs


def frozen_norms(backbone: Backbone) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Returns the frozen batch norms of a backbone, each with the frozen convolution whose output it gets."""
    made: dict[int, nn.Conv2d] = {}
    read: dict[int, list[nn.Module]] = {}
    kept = []  # the ids are of tensors that are there

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kept.extend([inputs[0], output])
        read.setdefault(id(inputs[0]), []).append(module)
        if isinstance(module, nn.Conv2d):
            made[id(output)] = module

    mode = backbone.training
    leaves = [m for m in backbone.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d) or not [*m.children()]]
    handles = [module.register_forward_hook(note) for module in leaves]
    channels = next(module.in_channels for module in leaves if isinstance(module, nn.Conv2d))
    with torch.no_grad():
        backbone.eval()(torch.zeros(1, channels, 64, 64))
    backbone.train(mode)
    for handle in handles:
        handle.remove()
    return [
        (made[tensor], modules[0])
        for tensor, modules in read.items()
        if tensor in made and len(modules) == 1 and isinstance(modules[0], nn.BatchNorm2d)
        and not modules[0].training and modules[0].track_running_stats and modules[0].affine
        and not any(p.requires_grad for module in (made[tensor], modules[0]) for p in module.parameters())
    ]  # fmt: skip


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """Returns a convolution that computes the batch norm after it, too, from running statistics."""
    double = [None if t is None else t.detach().double() for t in (conv.weight, conv.bias, norm.running_mean,
              norm.running_var, norm.weight, norm.bias)]  # fmt: skip
    weight, bias = fuse_conv_bn_weights(*double[:4], norm.eps, *double[4:])
    new = copy(conv)
    new._parameters = {}
    new.weight, new.bias = (nn.Parameter(p.to(conv.weight), requires_grad=False) for p in (weight, bias))
    return new.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def has_slow_gradient(module: nn.Module) -> bool:
    """Returns whether oneDNN 3.7, of PyTorch 2.11, has no fast gradient for the weights: depthwise, above 3 x 3."""
    return (
        type(module) is nn.Conv2d
        and 1 < module.groups == module.in_channels == module.out_channels
        and max(module.kernel_size) > 3
        and module.padding_mode == 'zeros'
        and not isinstance(module.padding, str)
        and module.weight.requires_grad
    )


def depthwise(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`forward` of a depthwise convolution."""
    settings = conv.stride, conv.padding, conv.dilation
    if not torch.is_grad_enabled() or x.dtype != torch.float32:
        return F.conv2d(x, conv.weight, conv.bias, *settings, conv.groups)
    return _Depthwise.apply(x, conv.weight, conv.bias, *settings)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *settings: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.settings = settings
        return F.conv2d(x, weight, bias, *settings, weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the weight of a channel is its input, convolved with the gradient of its output."""
        x, weight = ctx.saved_tensors
        stride, padding, dilation = ctx.settings
        (batch, channels), (height, width) = x.shape[:2], weight.shape[2:]
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.nn.grad.conv2d_input(x.shape, weight, grad, stride, padding, dilation, channels)
        planes, kernels = x.reshape(1, -1, *x.shape[2:]), grad.reshape(-1, 1, *grad.shape[2:])
        grad_weight = F.conv2d(planes, kernels, None, dilation, padding, stride, batch * channels)
        grad_weight = grad_weight[..., :height, :width].reshape(batch, channels, 1, height, width).sum(0)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum((0, 2, 3))
        return grad_x, grad_weight, grad_bias, None, None, None


def step_groups_together(optimizer: Optimizer) -> list[Any]:
    """Makes an optimizer step all parameters with equal settings as one group. Returns the handles of its hooks."""
    groups = optimizer.param_groups

    def merge(*_: Any) -> None:
        merged: dict[str, dict[str, Any]] = {}
        for group in groups:
            settings = {key: value for key, value in group.items() if key != 'params'}
            merged.setdefault(repr(settings), dict(settings, params=[]))['params'].extend(group['params'])
        optimizer.param_groups = [*merged.values()]

    def restore(*_: Any) -> None:
        optimizer.param_groups = groups

    return [optimizer.register_step_pre_hook(merge), optimizer.register_step_post_hook(restore)]
