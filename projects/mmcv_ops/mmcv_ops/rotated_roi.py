"""RoIAlign in rotated boxes, and its rotation-invariant form (ReDet).

RoIs are (K, 6): index of the image, x, y, w, h in its pixels, angle in radians.
"""

import math

import torch
from torch import Tensor

from .precision import float32
from .sampling import average, bins, check, scatter


def _places(rois: Tensor, size: tuple[int, int], scale: float, sampling_ratio: int, aligned: bool, clockwise: bool):
    """Yields chunks of RoIs (K, 6): their numbers, images, and the y and x of their samples, (k, PH, PW, S)."""
    center, sides = rois[:, 1:3] * scale - 0.5 * aligned, rois[:, 3:5] * scale
    if not aligned:
        sides = sides.clamp(min=1)
    angle = -rois[:, 5] if clockwise else rois[:, 5]
    for k, y, x in bins(sides[:, 0], sides[:, 1], size, sampling_ratio):
        cos, sin, width, height, x0, y0 = (
            t[k].view(-1, 1, 1, 1) for t in (angle.cos(), angle.sin(), *sides.T, *center.T)
        )
        y, x = y - height / 2, x - width / 2
        yield k, rois[k, 0].long(), y * cos - x * sin + y0, y * sin + x * cos + x0


def roi_align_rotated_forward(
    input: Tensor, rois: Tensor, output: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float,
    sampling_ratio: int, aligned: bool, clockwise: bool,
) -> None:  # fmt: skip
    """Writes the average per bin, (K, C, PH, PW), of features (N, C, H, W)."""
    features, rois = float32(input, rois)
    rois = rois.to(features.dtype)
    check(rois, features, rois[:, 3:5] if aligned else None)
    output.zero_()
    size = pooled_height, pooled_width
    for k, images, y, x in _places(rois, size, spatial_scale, sampling_ratio, aligned, clockwise):
        output[k] = average(features, images, y, x).to(output)


def roi_align_rotated_backward(
    grad_output: Tensor, rois: Tensor, grad_input: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float,
    sampling_ratio: int, aligned: bool, clockwise: bool,
) -> None:  # fmt: skip
    grad, rois = float32(grad_output, rois)
    rois = rois.to(grad.dtype)
    size = pooled_height, pooled_width
    for k, images, y, x in _places(rois, size, spatial_scale, sampling_ratio, aligned, clockwise):
        per_sample = (grad[k] / y.shape[-1])[..., None].expand(-1, -1, -1, -1, y.shape[-1])
        scatter(per_sample, grad_input, images, y, x)


def _orientations(rois: Tensor, count: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the numbers of the RoIs (K, 1), which input orientation each output orientation (K, O) begins with, and
    the part (K, 1, 1, 1, 1) of the next one."""
    turns = float32(rois)[0][:, 5] * count / (2 * math.pi)
    first = turns.floor()
    which = (torch.arange(count, device=rois.device) - first[:, None].long()) % count
    return torch.arange(len(rois), device=rois.device)[:, None], which, (turns - first).view(-1, 1, 1, 1, 1).to(like)


def riroi_align_rotated_forward(
    features: Tensor, rois: Tensor, output: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float,
    num_samples: int, num_orientations: int, clockwise: bool,
) -> None:  # fmt: skip
    """Writes the averages (K, C x O, PH, PW): RoIAlign whose O orientation channels are turned by the RoI's angle.

    An angle between two orientations takes the linear mean of both (Han et al. 2021, section 3.3).
    """
    pooled = torch.zeros_like(output, dtype=float32(features)[0].dtype)
    sizes = pooled_height, pooled_width, spatial_scale, num_samples
    roi_align_rotated_forward(features, rois, pooled, *sizes, False, clockwise)
    pooled = pooled.unflatten(1, (-1, num_orientations))
    k, which, part = _orientations(rois, num_orientations, pooled)
    first, second = (pooled[k, :, w] for w in (which, (which + 1) % num_orientations))  # (K, O, C, PH, PW)
    output.copy_(((1 - part) * first + part * second).transpose(1, 2).flatten(1, 2))


def riroi_align_rotated_backward(
    top_grad: Tensor, rois: Tensor, bottom_grad: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float,
    num_samples: int, num_orientations: int, clockwise: bool,
) -> None:  # fmt: skip
    (grad,) = float32(top_grad)
    grad = grad.unflatten(1, (-1, num_orientations)).transpose(1, 2)  # (K, O, C, PH, PW)
    k, which, part = _orientations(rois, num_orientations, grad)
    pooled = torch.zeros_like(grad)
    pooled[k, which] += (1 - part) * grad  # each orientation is the first one once, and the second one once
    pooled[k, (which + 1) % num_orientations] += part * grad
    sizes = pooled_height, pooled_width, spatial_scale, num_samples
    pooled = pooled.transpose(1, 2).flatten(1, 2)
    roi_align_rotated_backward(pooled, rois, bottom_grad, *sizes, False, clockwise)
