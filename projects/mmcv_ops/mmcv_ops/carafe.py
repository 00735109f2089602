"""CARAFE (Wang et al. 2019): upsampling by a weighted sum of k x k neighbors, with weights per output pixel and group.

Shapes: N images, G groups, D channels per group, K = k x k taps, S = scale factor, features H x W, output HS x WS.
"""

from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor

from .precision import float32


def _taps(features: Tensor, masks: Tensor, k: int, groups: int, scale: int) -> Iterator[tuple]:
    """Yields per tap its number, the rows and columns of its place in the padded features, and its mask."""
    height, width = features.shape[2:]
    weights = masks.reshape(len(masks), groups, k * k, 1, height, scale, width, scale)
    for tap in range(k * k):
        i, j = divmod(tap, k)
        yield tap, slice(i, i + height), slice(j, j + width), weights[:, :, tap]  # (N, G, 1, H, S, W, S)


def _padded(features: Tensor, k: int, groups: int) -> Tensor:
    """Returns (N, G, D, H + k - 1, W + k - 1)."""
    return F.pad(features, [k // 2] * 4).unflatten(1, (groups, -1))


def carafe_naive_forward(
    features: Tensor, masks: Tensor, output: Tensor, kernel_size: int, group_size: int, scale_factor: int
) -> None:
    """Writes the output (N, C, HS, WS) of features (N, C, H, W) and masks (N, G x K, HS, WS)."""
    x, masks = float32(features, masks)
    padded = _padded(x, kernel_size, group_size)
    result = 0
    for _, rows, columns, mask in _taps(x, masks, kernel_size, group_size, scale_factor):
        result = result + padded[..., rows, columns][..., None, :, None] * mask
    output.copy_(result.reshape(output.shape))


def carafe_naive_backward(
    grad_output: Tensor, features: Tensor, masks: Tensor, grad_features: Tensor, grad_masks: Tensor, kernel_size: int,
    group_size: int, scale_factor: int,
) -> None:  # fmt: skip
    """Writes the gradients of features and masks into `grad_features` and `grad_masks`."""
    grad, x, masks = float32(grad_output, features, masks)
    height, width = x.shape[2:]
    padded = _padded(x, kernel_size, group_size)
    grad_padded = padded.new_zeros(padded.shape)
    grad = grad.reshape(*padded.shape[:3], height, scale_factor, width, scale_factor)
    grad_taps = x.new_empty(len(x), group_size, kernel_size**2, height, scale_factor, width, scale_factor)
    for tap, rows, columns, mask in _taps(x, masks, kernel_size, group_size, scale_factor):
        grad_padded[..., rows, columns] += (grad * mask).sum((-3, -1))
        grad_taps[:, :, tap] = (grad * padded[..., rows, columns][..., None, :, None]).sum(2)
    grad_masks.copy_(grad_taps.view(grad_masks.shape))
    half = kernel_size // 2
    grad_features.copy_(grad_padded[..., half : half + height, half : half + width].flatten(1, 2))


def carafe_forward(
    features: Tensor, masks: Tensor, rfeatures: Tensor, routput: Tensor, rmasks: Tensor, output: Tensor,
    kernel_size: int, group_size: int, scale_factor: int,
) -> None:  # fmt: skip
    """As `carafe_naive_forward`. mmcv keeps `rfeatures` for the backward pass; the other buffers are not used."""
    rfeatures.copy_(features)
    carafe_naive_forward(features, masks, output, kernel_size, group_size, scale_factor)


def carafe_backward(
    grad_output: Tensor, rfeatures: Tensor, masks: Tensor, rgrad_output: Tensor, rgrad_input_hs: Tensor,
    rgrad_input: Tensor, rgrad_masks: Tensor, grad_input: Tensor, grad_masks: Tensor, kernel_size: int, group_size: int,
    scale_factor: int,
) -> None:  # fmt: skip
    carafe_naive_backward(grad_output, rfeatures, masks, grad_input, grad_masks, kernel_size, group_size, scale_factor)
