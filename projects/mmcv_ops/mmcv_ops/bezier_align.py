"""BezierAlign (Liu et al. 2020): features between two cubic curves, the upper and the lower side of a text line."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .precision import float32
from .sampling import average, bins, check, scatter


def _curve(points: Tensor, u: Tensor) -> Tensor:
    """Returns the places (K, PW, 2) on cubic Bezier curves with control points (K, 4, 2) at u (PW,)."""
    weights = torch.stack([(1 - u) ** 3, 3 * u * (1 - u) ** 2, 3 * u**2 * (1 - u), u**3], -1)
    return torch.einsum('wp,kpc->kwc', weights, points)


def _places(
    beziers: Tensor, size: tuple[int, int], scale: float, sampling_ratio: int, aligned: bool
) -> Iterator[tuple]:
    """Yields chunks of curves (K, 17): their numbers, images, and y and x of the samples (k, PH, PW, S).

    The samples of a bin are around its upper left corner, as in mmcv, not around its center.
    """
    points = beziers[:, 1:].unflatten(1, (8, 2)) * scale
    upper, lower = points[:, :4], points[:, 4:].flip(1)
    u, v = (torch.arange(n, device=points.device).to(points) / n for n in (size[1], size[0]))
    top, bottom = (_curve(curve, u)[:, None] for curve in (upper, lower))
    corner = bottom * v[:, None, None] + top * (1 - v[:, None, None]) - 0.5 * aligned  # (K, PH, PW, 2)
    sides = torch.maximum(*((curve[:, 0] - curve[:, 3]).abs() for curve in (upper, lower)))  # (K, 2): x, y
    if not aligned:
        sides = sides.clamp(min=1)
    width, height = sides[:, 0] / size[1], sides[:, 1] / size[0]  # of a bin
    for k, y, x in bins(width, height, (1, 1), sampling_ratio):
        x, y = x - width[k, None, None, None] / 2, y - height[k, None, None, None] / 2
        yield k, beziers[k, 0].long(), corner[k][..., 1:] + y, corner[k][..., :1] + x


def bezier_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, aligned_height: int, aligned_width: int, spatial_scale: float,
    sampling_ratio: int, aligned: bool,
) -> None:  # fmt: skip
    """Writes the average per bin, (K, C, aligned_height, aligned_width).

    Args:
        input: (N, C, H, W).
        rois: (K, 17): index of the image, four points x, y of the upper curve from left to right, four of the lower
            one from right to left, in the image's pixels.
        output: Written.
        aligned_height: Bins from the upper to the lower curve.
        aligned_width: Bins along the curves.
        spatial_scale: Feature pixels per pixel of the image.
        sampling_ratio: Samples per bin and axis. With 0, one per feature pixel.
        aligned: Whether the curves are moved by half a feature pixel.
    """
    features, rois = float32(input, rois)
    rois = rois.to(features.dtype)
    check(rois, features, None)
    output.zero_()
    for k, images, y, x in _places(rois, (aligned_height, aligned_width), spatial_scale, sampling_ratio, aligned):
        output[k] = average(features, images, y, x).to(output)


def bezier_align_backward(
    grad_output: Tensor, rois: Tensor, grad_input: Tensor, aligned_height: int, aligned_width: int,
    spatial_scale: float, sampling_ratio: int, aligned: bool,
) -> None:  # fmt: skip
    grad, rois = float32(grad_output, rois)
    rois = rois.to(grad.dtype)
    for k, images, y, x in _places(rois, (aligned_height, aligned_width), spatial_scale, sampling_ratio, aligned):
        per_sample = (grad[k] / y.shape[-1])[..., None].expand(-1, -1, -1, -1, y.shape[-1])
        scatter(per_sample, grad_input, images, y, x)
