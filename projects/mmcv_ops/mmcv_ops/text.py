"""Growing of text regions from kernels (PSENet, Wang et al. 2019; PAN, Wang et al. 2019).

Regions grow by one pixel to four sides, in waves: all pixels of a wave at once, in the order of a queue, so that each
pixel belongs to the region that a queue gives it to. On the CPU, as in mmcv.
"""

import itertools

import numpy as np
import torch
from torch import Tensor


def _array(tensor: Tensor, dtype) -> np.ndarray:
    return tensor.detach().cpu().to(dtype=dtype).contiguous().numpy()


class _Grid:
    """Pixels (H, W) as numbers in a frame of width 1 around them: neighbors are at fixed distances."""

    def __init__(self, height: int, width: int):
        self.shape, self.inner = (height + 2, width + 2), (slice(1, height + 1), slice(1, width + 1))
        self.neighbors = np.array([-self.shape[1], self.shape[1], -1, 1])  # up, down, left, right

    def framed(self, values: np.ndarray, outside) -> np.ndarray:
        """Returns the values (H, W) with a frame, as one row."""
        full = np.full(self.shape, outside, values.dtype)
        full[self.inner] = values
        return full.ravel()


def contour_expand(
    kernel_mask: Tensor, internal_kernel_label: Tensor, min_kernel_area: int, kernel_num: int
) -> list[list[int]]:
    """Returns the labels of all pixels, as rows.

    PSENet grows through all masks in turn. mmcv's kernel reads the first one each time, and so does this.

    Args:
        kernel_mask: (K, H, W): foreground of the kernels, the largest one first.
        internal_kernel_label: (H, W), labels from 1 of the smallest kernel; 0 is the background.
        min_kernel_area: Labels with fewer pixels are left out.
        kernel_num: The largest label.
    """
    labels = _array(internal_kernel_label, torch.int32)
    grid = _Grid(*labels.shape)
    small = np.bincount(labels[labels > 0], minlength=kernel_num + 1) < min_kernel_area
    label = grid.framed(np.where((labels > 0) & ~small[labels.clip(0)], labels, 0), 0)
    if len(kernel_mask) > 1:
        free = grid.framed(kernel_mask[0].detach().cpu().numpy() != 0, False) & (label == 0)
        wave = np.flatnonzero(label)
        while len(wave):
            around = (wave[:, None] + grid.neighbors).ravel()
            reached, first = _once(around, np.flatnonzero(free[around]))
            label[reached], free[reached] = label[wave[first // 4]], False
            wave = reached
    return label.reshape(grid.shape)[grid.inner].tolist()


def _once(around: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels `around[candidates]`, each once, in the order of a queue, and the first candidate of each."""
    reached, first = np.unique(around[candidates], return_index=True)
    order = first.argsort()
    return reached[order], candidates[first[order]]


def pixel_group(
    score: Tensor, mask: Tensor, embedding: Tensor, kernel_label: Tensor, kernel_contour: Tensor,
    kernel_region_num: int, distance_threshold: float,
) -> list[list[float]]:  # fmt: skip
    """Returns per label: the mean score, the number of pixels, and x and y of each pixel by rows; label 0 is empty.

    Args:
        score: (H, W).
        mask: (H, W), where regions may grow.
        embedding: (H, W, D).
        kernel_label: (H, W), labels from 1; 0 is the background.
        kernel_contour: (H, W), where the kernels' pixels begin to grow.
        kernel_region_num: Number of labels, with the background.
        distance_threshold: A pixel joins a region if its embedding is closer than this to the kernel's mean.
    """
    score, embedding = _array(score, torch.float32), _array(embedding, torch.float32)
    kernels, contour = _array(kernel_label, torch.int32), kernel_contour.detach().cpu().numpy() != 0
    grid = _Grid(*kernels.shape)
    dims = embedding.shape[-1]
    means = np.zeros((kernel_region_num, dims), np.float32)
    inside = kernels > 0
    np.add.at(means, kernels[inside], embedding[inside])
    counts = np.bincount(kernels[inside], minlength=kernel_region_num).astype(np.float32)
    with np.errstate(all='ignore'):
        means /= counts[:, None]
    label = grid.framed(kernels, 0)
    allowed = grid.framed(mask.detach().cpu().numpy() != 0, False) & (label <= 0)
    framed = np.zeros((*grid.shape, dims), np.float32)
    framed[grid.inner] = embedding
    framed = framed.reshape(-1, dims)
    wave = np.flatnonzero((label > 0) & grid.framed(contour, False))
    threshold = np.float32(distance_threshold) ** 2
    while len(wave):
        around = (wave[:, None] + grid.neighbors).ravel()
        labels = label[wave].repeat(4)
        candidates = np.flatnonzero(allowed[around])
        apart = np.square(means[labels[candidates]] - framed[around[candidates]]).sum(1)
        wave, first = _once(around, candidates[apart < threshold])  # may be far from one region and near the next
        label[wave], allowed[wave] = labels[first], False
    return _regions(label.reshape(grid.shape)[grid.inner], score, kernel_region_num)


def _regions(label: np.ndarray, score: np.ndarray, count: int) -> list[list[float]]:
    y, x = np.nonzero(label > 0)
    labels = label[y, x]
    order = labels.argsort(kind='stable')
    regions = []
    bounds = np.searchsorted(labels[order], np.arange(count + 1))
    for first, end in itertools.pairwise(bounds):
        part = order[first:end]
        total = np.cumsum(score[y[part], x[part]], dtype=np.float32)[-1:].sum()  # added one by one, as in mmcv
        places = np.stack([x[part], y[part]], 1).astype(np.float32).ravel().tolist()
        regions.append([float(total / np.float32(max(1, len(part)))), float(len(part)), *places])
    return regions
