"""Correlation of two feature maps (Dosovitskiy et al. 2015, FlowNet): products with the other map, displaced."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import check_shapes
from .precision import float32


def _correlate(a: Tensor, b: Tensor, kernel, patch, pad, dilation, dilation_patch, stride) -> Tensor:
    """Returns (N, patch rows, patch columns, output height, output width). All sizes are (vertical, horizontal).

    Sums over channels and a window of `kernel` pixels with `dilation`. Outside of the maps the product is 0.
    """
    radius = [d * (p - 1) // 2 for d, p in zip(dilation_patch, patch, strict=True)]
    padded = F.pad(b, (radius[1], radius[1], radius[0], radius[0]))
    height, width = a.shape[2:]
    window = a.new_ones(1, 1, *kernel)
    maps = []
    for i in range(patch[0]):
        for j in range(patch[1]):
            y, x = i * dilation_patch[0], j * dilation_patch[1]
            product = (a * padded[..., y : y + height, x : x + width]).sum(1, keepdim=True)
            maps.append(F.conv2d(product, window, stride=stride, padding=pad, dilation=dilation))
    return torch.cat(maps, 1).unflatten(1, patch)


def _sizes(kH, kW, patchH, patchW, padH, padW, dilationH, dilationW, dilation_patchH, dilation_patchW, dH, dW):
    return (
        (kH, kW), (patchH, patchW), (padH, padW), (dilationH, dilationW), (dilation_patchH, dilation_patchW), (dH, dW)
    )  # fmt: skip


def correlation_forward(
    input1: Tensor, input2: Tensor, output: Tensor, kH: int, kW: int, patchH: int, patchW: int, padH: int, padW: int,
    dilationH: int, dilationW: int, dilation_patchH: int, dilation_patchW: int, dH: int, dW: int,
) -> None:  # fmt: skip
    """Writes the correlations (N, patchH, patchW, oH, oW) of two maps (N, C, H, W)."""
    sizes = _sizes(kH, kW, patchH, patchW, padH, padW, dilationH, dilationW, dilation_patchH, dilation_patchW, dH, dW)
    check_shapes('correlation', input2=(input2, input1.shape))
    output.copy_(_correlate(*float32(input1, input2), *sizes))


def correlation_backward(
    grad_output: Tensor, input1: Tensor, input2: Tensor, grad_input1: Tensor, grad_input2: Tensor, kH: int, kW: int,
    patchH: int, patchW: int, padH: int, padW: int, dilationH: int, dilationW: int, dilation_patchH: int,
    dilation_patchW: int, dH: int, dW: int,
) -> None:  # fmt: skip
    sizes = _sizes(kH, kW, patchH, patchW, padH, padW, dilationH, dilationW, dilation_patchH, dilation_patchW, dH, dW)
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in float32(input1, input2)]
        grads = torch.autograd.grad(_correlate(*leaves, *sizes), leaves, *float32(grad_output))
    grad_input1.copy_(grads[0])
    grad_input2.copy_(grads[1])
