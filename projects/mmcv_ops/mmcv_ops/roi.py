"""RoIAlign and RoIPool. RoIs are (batch index, x1, y1, x2, y2) in image coordinates, (K, 5)."""

import torch
import torchvision
from torch import Tensor

from .precision import float32


def roi_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, aligned_height: int,
    aligned_width: int, spatial_scale: float, sampling_ratio: int, pool_mode: int, aligned: bool,
) -> None:  # fmt: skip
    if pool_mode != 1:
        raise NotImplementedError("RoIAlign(pool_mode='max')")
    features, rois = float32(input, rois)
    size = (aligned_height, aligned_width)
    output.copy_(torchvision.ops.roi_align(features, rois, size, spatial_scale, sampling_ratio, aligned))


def roi_align_backward(
    grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor, grad_input: Tensor, aligned_height: int,
    aligned_width: int, spatial_scale: float, sampling_ratio: int, pool_mode: int, aligned: bool,
) -> None:  # fmt: skip
    grad, rois = float32(grad_output, rois)
    args = spatial_scale, aligned_height, aligned_width, *grad_input.shape, sampling_ratio, aligned
    grad_input.copy_(torch.ops.torchvision._roi_align_backward(grad, rois, *args))


def roi_pool_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax: Tensor, pooled_height: int, pooled_width: int,
    spatial_scale: float,
) -> None:  # fmt: skip
    features, rois = float32(input, rois)
    values, where = torch.ops.torchvision.roi_pool(features, rois, spatial_scale, pooled_height, pooled_width)
    output.copy_(values)
    argmax.copy_(where)


def roi_pool_backward(
    grad_output: Tensor, rois: Tensor, argmax: Tensor, grad_input: Tensor, pooled_height: int, pooled_width: int,
    spatial_scale: float,
) -> None:  # fmt: skip
    grad, rois = float32(grad_output, rois)
    args = spatial_scale, pooled_height, pooled_width, *grad_input.shape
    grad_input.copy_(torch.ops.torchvision._roi_pool_backward(grad, rois, argmax, *args))
