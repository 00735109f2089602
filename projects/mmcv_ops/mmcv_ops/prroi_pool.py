"""Precise RoI pooling (Jiang et al. 2018): the exact mean of the bilinear interpolation over a bin.

The interpolation is a sum of hat functions in x times hat functions in y, so that its integral over a bin is
`rows @ features @ columns^T`, with the integral of each pixel's hat over the bin's side.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from .precision import float32
from .sampling import check

_CHUNK = 16  # RoIs of an image that are multiplied at once


def _hats(start: Tensor, side: Tensor, count: int, pixels: int) -> Tensor:
    """Returns the integrals (K, count, pixels) of the pixels' hats over `count` bins from `start`, `side` wide (K,)."""
    bounds = start[:, None] + side[:, None] / count * torch.arange(count + 1, device=start.device)
    t = (bounds[..., None] - torch.arange(pixels, device=start.device)).clamp(-1, 1)
    below = torch.where(t < 0, (t + 1).square() / 2, 1 - (1 - t).square() / 2)  # the hat's integral up to the bound
    return below[:, 1:] - below[:, :-1]


def _pool(features: Tensor, rois: Tensor, size: tuple[int, int], scale: float) -> Tensor:
    """Returns the means (k, C, PH, PW) in RoIs (k, 5) of one image's features (C, H, W)."""
    x1, y1, x2, y2 = (rois[:, 1:] * scale).T
    width, height = (x2 - x1).clamp(min=0), (y2 - y1).clamp(min=0)
    rows = _hats(y1, height, size[0], features.shape[1])
    columns = _hats(x1, width, size[1], features.shape[2])
    total = torch.einsum('kph,chw,kqw->kcpq', rows, features, columns)
    areas = (height * width / (size[0] * size[1]))[:, None, None, None]
    return torch.where(areas > 0, total / torch.where(areas > 0, areas, 1), 0)


def _chunks(rois: Tensor, images: int) -> Iterator[tuple[int, Tensor]]:
    for image in range(images):
        for k in (rois[:, 0].long() == image).nonzero()[:, 0].split(_CHUNK):
            yield image, k


def prroi_pool_forward(
    input: Tensor, rois: Tensor, output: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float
) -> None:
    """Writes the means (K, C, PH, PW). Outside of the image the features are 0."""
    features, rois = float32(input, rois)
    check(rois, features, None)
    for image, k in _chunks(rois, len(features)):
        output[k] = _pool(features[image], rois[k], (pooled_height, pooled_width), spatial_scale).to(output)


def prroi_pool_backward(
    grad_output: Tensor, rois: Tensor, grad_input: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float
) -> None:
    """Adds the gradient of the features (N, C, H, W) to `grad_input`. The output is linear in them."""
    grad, rois = float32(grad_output, rois)
    size = pooled_height, pooled_width
    for image, k in _chunks(rois, len(grad_input)):
        with torch.enable_grad():
            leaf = grad.new_zeros(grad_input.shape[1:], requires_grad=True)
            grad_input[image] += torch.autograd.grad(_pool(leaf, rois[k], size, spatial_scale), leaf, grad[k])[0]


def prroi_pool_coor_backward(
    output: Tensor, grad_output: Tensor, input: Tensor, rois: Tensor, grad_rois: Tensor, pooled_height: int,
    pooled_width: int, spatial_scale: float,
) -> None:  # fmt: skip
    """Writes the gradient of the coordinates (K, 5) into `grad_rois`; that of the image's index is 0."""
    grad, features, rois = float32(grad_output, input, rois)
    size = pooled_height, pooled_width
    for image, k in _chunks(rois, len(features)):
        with torch.enable_grad():
            leaf = rois[k].detach().requires_grad_()
            pooled = _pool(features[image].detach(), leaf, size, spatial_scale)
            grad_rois[k] = torch.autograd.grad(pooled, leaf, grad[k])[0].to(grad_rois)
    grad_rois[:, 0] = 0
