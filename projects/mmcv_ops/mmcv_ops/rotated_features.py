"""Features that follow rotated boxes: S2ANet's rotating filters, and R3Det's feature refinement."""

import torch
from torch import Tensor

from .precision import float32
from .sampling import sample, scatter


def active_rotated_filter_forward(input: Tensor, indices: Tensor, output: Tensor) -> None:
    """Writes each filter in R rotations (Zhou et al. 2017, Han et al. 2020).

    Args:
        input: (P, C, O, kH, kW), filters for C groups of O orientation channels.
        indices: (O, kH, kW, R), integers from 1: the place of each weight among the O x kH x kW of a rotation.
        output: (P x R, C x O, kH, kW), written.
    """
    weights, places = input.flatten(2), indices.flatten(0, -2).long() - 1  # (P, C, E) and (E, R)
    rotations = torch.zeros_like(weights)[:, None].repeat(1, places.shape[1], 1, 1)  # (P, R, C, E)
    for r in range(places.shape[1]):
        rotations[:, r, :, places[:, r]] = weights
    output.copy_(rotations.view(output.shape))


def active_rotated_filter_backward(grad_out: Tensor, indices: Tensor, grad_in: Tensor) -> None:
    places = indices.flatten(0, -2).long() - 1
    shape = len(grad_in), places.shape[1], grad_in.shape[1], len(places)
    grad = float32(grad_out)[0].reshape(shape)
    total = sum(grad[:, r, :, places[:, r]] for r in range(places.shape[1]))
    grad_in.copy_(total.view(grad_in.shape))


def _align(step, boxes: Tensor, features: Tensor, scale: float, points: int, output: Tensor) -> None:
    """Writes `step(total, images, y, x)` of each point, y and x (N, H, W): a box's center, and its corners if 5 points.

    Boxes (N, H, W, 5), from mmrotate (N x H x W, 5), are y, x, w, h, angle here: mmcv takes the first number as y.
    """
    boxes = boxes.to(features.dtype).reshape(len(features), *features.shape[2:], 5)
    y, x, w, h = (boxes[..., :4] * scale).unbind(-1)
    places = [(y, x)]
    if points > 1:
        cos, sin = boxes[..., 4].cos() / 2, boxes[..., 4].sin() / 2
        for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1)):
            places.append((y + i * sin * w + j * cos * h, x + i * cos * w - j * sin * h))
    total, images = features.clone(), torch.arange(len(features), device=features.device)
    for place in places:
        step(total, images, *place)
    output.copy_(total)


def rotated_feature_align_forward(
    features: Tensor, best_bboxes: Tensor, output: Tensor, spatial_scale: float, points: int
) -> None:
    """Writes features (N, C, H, W) plus those at 1 or 5 points of each pixel's box (N, H, W, 5) (Yang et al. 2019)."""
    x, boxes = float32(features, best_bboxes)
    _align(lambda total, *place: total.add_(sample(x, *place)), boxes, x, spatial_scale, points, output)


def rotated_feature_align_backward(
    top_grad: Tensor, best_bboxes: Tensor, bottom_grad: Tensor, spatial_scale: float, points: int
) -> None:
    grad, boxes = float32(top_grad, best_bboxes)
    _align(lambda total, *place: scatter(grad, total, *place), boxes, grad, spatial_scale, points, bottom_grad)
