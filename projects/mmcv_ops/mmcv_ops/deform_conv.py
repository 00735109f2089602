"""Deformable convolution v1 and v2 (Dai et al. 2017, Zhu et al. 2019).

Offsets and masks have the same layout in mmcv and torchvision: (N, groups x 2 x kH x kW, H, W), y before x.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import float32

_ops = torch.ops.torchvision


def _arguments(input, weight, offset, mask, bias, strides, padding, dilation, group, deformable_group) -> tuple:
    """Returns torchvision's arguments, in float32 where they are in half precision."""
    use_mask = mask is not None
    if not use_mask:
        mask = offset.new_ones(offset.shape[0], offset.shape[1] // 2, *offset.shape[2:])
    if bias is None:
        bias = input.new_zeros(weight.shape[0])
    tensors = float32(input, weight, offset, mask, bias)
    return *tensors, *strides, *padding, *dilation, group, deformable_group, use_mask


def _backward(grad: Tensor, *arguments) -> tuple:
    """Returns the gradients of input, weight, offset, mask and bias for torchvision's arguments.

    Where a sample is exactly at -1, which is where each padded convolution starts with offsets of 0, torchvision
    returns the derivative on the inner side. It is 0 in mmcv, as outside of the feature map.
    """
    grads = list(_ops._deform_conv2d_backward(*float32(grad), *arguments))
    weight, offset = arguments[1:3]
    strides, padding, dilation = (arguments[i : i + 2] for i in (5, 7, 9))
    places = offset.unflatten(1, (-1, *weight.shape[2:], 2))  # (N, groups, kH, kW, y and x, H, W)
    for axis, size in enumerate(offset.shape[2:]):
        place = torch.arange(size, device=offset.device) * strides[axis] - padding[axis]
        tap = torch.arange(weight.shape[2 + axis], device=offset.device) * dilation[axis]
        start = (tap[:, None] + place).to(offset)  # (taps, size)
        start = start[:, None, :, None] if axis == 0 else start[:, None]
        at_border = places[:, :, :, :, axis] + start == -1
        grads[2].unflatten(1, (-1, *weight.shape[2:], 2))[:, :, :, :, axis].masked_fill_(at_border, 0)
    return tuple(grads)


def deform_conv_forward(
    input, weight, offset, output, columns, ones, kW, kH, dW, dH, padW, padH, dilationW, dilationH, group,
    deformable_group, im2col_step,
) -> None:  # fmt: skip
    sizes = (dH, dW), (padH, padW), (dilationH, dilationW)
    output.copy_(_ops.deform_conv2d(*_arguments(input, weight, offset, None, None, *sizes, group, deformable_group)))


def _v1_gradients(grad_output, input, weight, offset, dW, dH, padW, padH, dilationW, dilationH, group, groups) -> tuple:
    sizes = (dH, dW), (padH, padW), (dilationH, dilationW)
    return _backward(grad_output, *_arguments(input, weight, offset, None, None, *sizes, group, groups))


def deform_conv_backward_input(
    input, offset, grad_output, grad_input, grad_offset, weight, columns, kW, kH, dW, dH, padW, padH, dilationW,
    dilationH, group, deformable_group, im2col_step,
) -> None:  # fmt: skip
    grads = _v1_gradients(
        grad_output, input, weight, offset, dW, dH, padW, padH, dilationW, dilationH, group, deformable_group
    )
    grad_input.copy_(grads[0])
    grad_offset.copy_(grads[2])


def deform_conv_backward_parameters(
    input, offset, grad_output, grad_weight, columns, ones, kW, kH, dW, dH, padW, padH, dilationW, dilationH, group,
    deformable_group, scale, im2col_step,
) -> None:  # fmt: skip
    # The weight's values have no influence on its gradient.
    grads = _v1_gradients(
        grad_output, input, grad_weight, offset, dW, dH, padW, padH, dilationW, dilationH, group, deformable_group
    )
    grad_weight.add_(grads[1], alpha=scale)


def _of_size(tensor: Tensor, size: tuple[int, ...]) -> Tensor:
    """Returns offsets or masks (N, M, H, W) of the output's size.

    Where the output is smaller, mmcv's kernels take the first values of each image as if they had its shape. DyHead's
    published weights are trained so: its offsets come from a larger feature map.
    """
    count = tensor.shape[1] * size[0] * size[1]
    if tensor.shape[2:] == size or count > tensor[:1].numel():
        return tensor
    return tensor.flatten(1)[:, :count].unflatten(1, (-1, *size))


def _add(target: Tensor, grad: Tensor) -> None:
    """Adds a gradient to `target`, or to the first values of each image as `_of_size` takes them."""
    if target.shape != grad.shape:
        grad = F.pad(grad.flatten(1), (0, target[0].numel() - grad[0].numel())).view(target.shape)
    target.add_(grad)


def modulated_deform_conv_forward(
    input, weight, bias, ones, offset, mask, output, columns, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w,
    dilation_h, dilation_w, group, deformable_group, with_bias,
) -> None:  # fmt: skip
    sizes = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    bias = bias if with_bias else None
    offset, mask = (_of_size(t, output.shape[2:]) for t in (offset, mask))
    output.copy_(_ops.deform_conv2d(*_arguments(input, weight, offset, mask, bias, *sizes, group, deformable_group)))


def modulated_deform_conv_backward(
    input, weight, bias, ones, offset, mask, columns, grad_input, grad_weight, grad_bias, grad_offset, grad_mask,
    grad_output, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, group, deformable_group,
    with_bias,
) -> None:  # fmt: skip
    sizes = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    offset, mask = (_of_size(t, grad_output.shape[2:]) for t in (offset, mask))
    grads = _backward(grad_output, *_arguments(input, weight, offset, mask, None, *sizes, group, deformable_group))
    targets = [grad_input, grad_weight, grad_offset, grad_mask] + ([grad_bias] if with_bias else [])
    for target, grad in zip(targets, grads, strict=False):
        _add(target, grad)
