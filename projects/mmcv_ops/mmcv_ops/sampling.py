"""Bilinear samples of feature maps in the bins of regions, for the poolings that torchvision does not have.

K regions, PH x PW bins per region, S samples per bin.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from .checks import check_shapes

SAMPLES = 1 << 24  # most samples, of all channels together, that are kept at once: a huge region takes a few channels


def check(rois: Tensor, features: Tensor, sides: Tensor | None) -> None:
    """Raises RuntimeError on a CPU, where NaN and images outside the batch would crash the process, as they do in mmcv.

    Sides are checked where they are given. On an accelerator no values are checked, in mmcv neither. Features that are
    not (B, C, H, W) raise ValueError everywhere.
    """
    check_shapes('RoIs', features=(features, (None,) * 4))
    if rois.device.type != 'cpu':
        return
    images, image = len(features), rois[:, 0]
    causes = [
        ('RoIs need finite numbers: found NaN or infinity', rois.isfinite().all(1)),
        (
            f'RoIs need the index of an image in their first column: found one outside the batch of {images}',
            (image >= 0) & (image < images),
        ),
        ('RoIs need the index of an image in their first column: found a fraction', image == image.floor()),
    ]
    if sides is not None:
        causes.append(('RoIs need x1 <= x2 and y1 <= y2 if aligned: found a negative size', (sides >= 0).all(1)))
    for message, valid in causes:
        torch._assert_async(valid.all(), message)


def bins(width: Tensor, height: Tensor, size: tuple[int, int], sampling_ratio: int) -> Iterator[tuple]:
    """Yields chunks of regions with equal sample grids, and where the samples are from the region's corner.

    Regions without samples (of size 0, where `sampling_ratio` is 0) are left out.

    Args:
        width: (K,), in feature pixels.
        height: (K,), in feature pixels.
        size: PH, PW.
        sampling_ratio: Samples per bin and axis. With 0, one per feature pixel.

    Yields:
        Indices (k,), and y and x offsets (k, PH, PW, S).
    """
    for indices, grid in equal_grids(width, height, size, sampling_ratio):
        shape = len(indices), *size, *grid
        y = offsets(height[indices], size[0], grid[0])[:, :, None, :, None].expand(shape).flatten(3)
        x = offsets(width[indices], size[1], grid[1])[:, None, :, None, :].expand(shape).flatten(3)
        yield indices, y, x


def equal_grids(
    width: Tensor, height: Tensor, size: tuple[int, int], sampling_ratio: int
) -> Iterator[tuple[Tensor, list[int]]]:
    """Yields chunks of regions with equal sample grids: their indices (k,), and the samples per bin along y and x.

    The arguments are those of `bins`. A chunk has at most 256 samples per bin in total.
    """
    grids = torch.stack([height / size[0], width / size[1]], 1).ceil().long()
    if sampling_ratio > 0:
        grids = torch.full_like(grids, sampling_ratio)
    for grid in grids.unique(dim=0).tolist():
        if min(grid) > 0:
            chosen = (grids == grids.new_tensor(grid)).all(1).nonzero()[:, 0]
            for indices in chosen.split(max(1, 256 // (grid[0] * grid[1]))):
                yield indices, grid


def offsets(side: Tensor, count: int, samples: int) -> Tensor:
    """Returns where samples are in the bins of regions along one axis, (k, count, samples), for sides (k,)."""
    places = torch.arange(count, device=side.device)[:, None], torch.arange(samples, device=side.device) + 0.5
    side = side[:, None, None] / count
    return places[0] * side + places[1] * side / samples


def corners(y: Tensor, x: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Returns the four neighbors of each sample, as indices into H x W, and their weights. Both are (..., 4).

    Samples up to one pixel outside take the border's value; those further outside have weight 0, as has NaN.
    """
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    low, high, part = [], [], []
    for place, size in ((y, height), (x, width)):
        place = torch.where(inside, place, 0).clamp(0, size - 1)
        low.append(place.long())
        high.append((low[-1] + 1).clamp(max=size - 1))
        part.append(place - low[-1])
    (y0, x0), (y1, x1), (ly, lx) = low, high, part
    indices = torch.stack([y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1], -1)
    weights = torch.stack([(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx], -1)
    return indices, weights * inside[..., None]


def sample(features: Tensor, images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Returns the values (k, C, ...) of features (N, C, H, W) at places y, x (k, ...) of the images (k,)."""
    indices, weights = corners(y, x, *features.shape[2:])
    rows = images.view(-1, *[1] * y.dim()) * features.shape[2] * features.shape[3] + indices
    flat = features.transpose(0, 1).flatten(1)  # (C, N x H x W)
    return (flat[:, rows] * weights).sum(-1).transpose(0, 1)


def average(features: Tensor, images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Returns the means over the last axis of what `sample` returns."""
    parts = features.split(max(1, SAMPLES // max(1, y.numel())), 1)
    return torch.cat([sample(part, images, y, x).mean(-1) for part in parts], 1)


def scatter(grad: Tensor, grad_features: Tensor, images: Tensor, y: Tensor, x: Tensor) -> None:
    """Adds to `grad_features` (N, C, H, W) what `sample` would get as gradients, `grad` (k, C, ...)."""
    n, channels, height, width = grad_features.shape
    indices, weights = corners(y, x, height, width)
    rows = (images.view(-1, *[1] * y.dim()) * height * width + indices).flatten()
    step = max(1, SAMPLES // max(1, y.numel()))
    for part in (slice(c, c + step) for c in range(0, channels, step)):
        values = (grad[:, part].transpose(0, 1)[..., None] * weights).flatten(1)
        flat = values.new_zeros(len(values), n * height * width).index_add_(1, rows, values)
        grad_features[:, part] += flat.view(-1, n, height, width).transpose(0, 1)
