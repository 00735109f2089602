"""Training on a CPU in less time, with the same results up to float32's rounding."""

import ctypes
import sys
from collections.abc import Callable
from contextlib import ExitStack
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

from tokennorm.backbones.base import Backbone
from tokennorm.base.environment import check_mmcv_ops
from tokennorm.engine.distributed import unwrapped
from tokennorm.registry import HOOKS


@HOOKS.register_module()
class CPUSpeedHook(Hook):
    """Replaces `forward` of some modules, and keeps freed memory, while training lasts.

    Parameters and checkpoints keep their names and shapes.

    - A convolutional backbone computes with channels last, and its frozen batch norms inside of the convolutions before
      them, if its feature maps stay the same. Feature maps keep their memory format.
    - Gradients of the weights of large depthwise convolutions are convolutions themselves.
    - Freed memory is kept for the next step, which helps batches of several images.
    """

    priority = 'LOW'  # the weights are loaded

    def __init__(self) -> None:
        self._modules, self._memory = ExitStack(), ExitStack()
        self._frozen: list[tuple[nn.Conv2d, nn.BatchNorm2d]] = []
        self._noted: list[Any] = []

    def before_train(self, runner: Runner) -> None:
        self._replace_modules(runner)
        self._memory.callback(keep_freed_memory())

    def before_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        if settings_of(self._frozen) != self._noted:  # a hook unfroze them, or loaded weights
            self._replace_modules(runner)

    def before_val_epoch(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self._replace_modules(runner)  # EMAHook has put its weights in, or out

    after_val_epoch = before_val_epoch

    def on_exit(self, runner: Runner) -> None:
        """Restores what was replaced, also when training ends by an error."""
        self._modules.close()
        self._memory.close()

    after_train = on_exit  # of mmengine's runner

    def _replace_modules(self, runner: Runner) -> None:
        self._modules.close()
        self._frozen = []
        model = unwrapped(runner.model)
        backbone = getattr(model, 'backbone', None)
        own = isinstance(backbone, Backbone) and type(backbone).forward is Backbone.forward
        if own and backbone.autocast_dtype is None:
            layout = torch.channels_last if is_convolutional(backbone) else torch.preserve_format
            if is_convolutional(backbone):
                self._fold(backbone)
                for norm in (module for module in model.modules() if isinstance(module, nn.GroupNorm)):
                    self._modules.callback(norm.register_forward_pre_hook(contiguous).remove)
            compiled = check_mmcv_ops() == 'compiled in mmcv'  # its RoIAlign reads other formats wrongly
            self._replace(backbone, partial(backbone_forward, backbone, layout=layout, contiguous=compiled))
        for conv in filter(has_slow_gradient, model.modules()):
            self._replace(conv, partial(depthwise, conv))
        self._noted = settings_of(self._frozen)

    def _fold(self, backbone: Backbone) -> None:
        self._frozen, wanted = frozen_norms(backbone)
        for conv, norm in self._frozen:
            self._replace(conv, folded(conv, norm).forward)
            self._replace(norm, getattr(norm, 'act', nn.Identity()).forward)
        outs = outputs_of(backbone)
        if not all(
            (out - as_before).norm() <= 1e-3 * as_before.norm() for out, as_before in zip(outs, wanted, strict=True)
        ):
            self._modules.close()  # a convolution with other arithmetic, or whose output is also used elsewhere

    def _replace(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        if 'forward' not in vars(module):
            module.forward = forward  # of this object; the class's is back when it is deleted
            self._modules.callback(vars(module).pop, 'forward')


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


def contiguous(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Makes the inputs of a group norm contiguous.

    With channels last PyTorch 2.11 computes the variance from squares, which loses digits where the mean is large, and
    the backward pass reads a null pointer if the input has no gradient.
    """
    return tuple(x.contiguous() for x in inputs)


def outputs_of(backbone: Backbone) -> tuple[Tensor, ...]:
    """Returns the feature maps, in evaluation, of a small image that is always the same."""
    modes = {module: module.training for module in backbone.modules()}
    channels = next(module.in_channels for module in modes if isinstance(module, nn.Conv2d))
    with torch.no_grad():
        outs = backbone.eval()(torch.rand(1, channels, 64, 64, generator=torch.Generator().manual_seed(0)))
    for module, mode in modes.items():
        module.training = mode
    return outs


def frozen_norms(backbone: Backbone) -> tuple[list[tuple[nn.Conv2d, nn.BatchNorm2d]], tuple[Tensor, ...]]:
    """Returns the frozen batch norms of a backbone, each with the frozen convolution whose output it gets.

    The second result is what `outputs_of` returns.
    """
    made: dict[int, nn.Conv2d] = {}
    read: dict[int, list[nn.Module]] = {}
    kept = []  # the ids are of tensors that are there

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kept.extend([inputs[0], output])
        read.setdefault(id(inputs[0]), []).append(module)
        if isinstance(module, nn.Conv2d):
            made[id(output)] = module

    leaves = [m for m in backbone.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d) or not [*m.children()]]
    handles = [module.register_forward_hook(note) for module in leaves]
    outs = outputs_of(backbone)
    for handle in handles:
        handle.remove()
    pairs = [
        (made[tensor], modules[0])
        for tensor, modules in read.items()
        if tensor in made and len(modules) == 1 and isinstance(modules[0], nn.BatchNorm2d)
        and not modules[0].training and modules[0].track_running_stats and modules[0].affine
        and not any(p.requires_grad for module in (made[tensor], modules[0]) for p in module.parameters())
    ]  # fmt: skip
    return pairs, outs


def settings_of(frozen: list[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> list[Any]:
    """Returns what changes when frozen norms and their convolutions are trained, or get other weights."""
    tensors = [t for pair in frozen for module in pair for t in (*module.parameters(), *module.buffers())]
    return [norm.training for _, norm in frozen] + [(t.requires_grad, t.data_ptr(), t._version) for t in tensors]


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
        type(module) in (nn.Conv2d, same_convolution())
        and 1 < module.groups == module.in_channels == module.out_channels
        and max(module.kernel_size) > 3
        and module.padding_mode == 'zeros'
        and not isinstance(module.padding, str)
        and module.weight.requires_grad
    )


def same_convolution() -> type | None:
    """Returns timm's convolution with the padding of TensorFlow, if timm was imported."""
    return getattr(sys.modules.get('timm.layers'), 'Conv2dSame', None)


def depthwise(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`forward` of a depthwise convolution."""
    if type(conv) is same_convolution():  # its own padding is 0
        x = sys.modules['timm.layers'].pad_same(x, conv.kernel_size, conv.stride, conv.dilation)
    settings = conv.stride, conv.padding, conv.dilation
    plain = torch.is_grad_enabled() and x.dtype == torch.float32 and not torch.is_autocast_enabled(x.device.type)
    if not plain or not x.numel():
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


def keep_freed_memory() -> Callable[[], None]:
    """Makes glibc keep freed memory: new pages cost a fault and zeros each. Returns a call that undoes it."""
    libc = ctypes.CDLL(None) if sys.platform == 'linux' else None

    def set_thresholds(of_mmap: int, of_trim: int) -> None:
        if hasattr(libc, 'mallopt'):  # other C libraries have none
            libc.mallopt(-3, of_mmap)
            libc.mallopt(-1, of_trim)
            libc.malloc_trim(0)

    set_thresholds(2**31 - 1, 2**31 - 1)
    return partial(set_thresholds, 32 << 20, 64 << 20)  # where those of glibc, which grow, end
