"""BorderAlign (Qiu et al. 2020): the highest sample on each side of a box, from a quarter of the channels per side."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .precision import float32
from .sampling import sample, scatter

_VALUES = 1 << 22  # samples x channels that are read at once


def _borders(boxes: Tensor, pool_size: int, channels: int) -> Iterator[tuple]:
    """Yields per side and chunk of boxes (n, 4): side, slice, and y and x (k, pool_size + 1) of the samples.

    Sides are top, left (both from the corner x1, y1), bottom, right (from x2, y2, backwards).
    """
    x1, y1, x2, y2 = boxes.T[..., None]
    steps = torch.arange(pool_size + 1, device=boxes.device)
    across, down = (x2 - x1) / pool_size * steps, (y2 - y1) / pool_size * steps
    still = torch.zeros_like(across)
    places = (y1 + still, x1 + across), (y1 + down, x1 + still), (y2 - still, x2 - across), (y2 - down, x2 - still)
    rows = max(1, _VALUES // (channels * (pool_size + 1)))
    for side, (y, x) in enumerate(places):
        for first in range(0, len(boxes), rows):
            part = slice(first, first + rows)
            yield side, part, y[part], x[part]


def border_align_forward(input: Tensor, boxes: Tensor, output: Tensor, argmax_idx: Tensor, pool_size: int) -> None:
    """Writes the highest of `pool_size` + 1 samples per side, and its number.

    Args:
        input: (N, 4 x C, H, W): channels for top, left, bottom and right.
        boxes: (N, K, 4): x1, y1, x2, y2 in feature pixels.
        output: (N, C, K, 4), written.
        argmax_idx: As `output`, written.
        pool_size: Intervals per side.
    """
    features, boxes = float32(input, boxes)
    channels = features.shape[1] // 4
    for n in range(len(features)):
        for side, part, y, x in _borders(boxes[n].to(features.dtype), pool_size, channels):
            maps = features[n : n + 1, side * channels : (side + 1) * channels]
            image = torch.zeros(len(y), dtype=torch.long, device=y.device)
            highest, which = sample(maps, image, y, x).max(-1)  # (k, C)
            output[n, :, part, side], argmax_idx[n, :, part, side] = highest.T.to(output), which.T.to(argmax_idx)


def border_align_backward(
    grad_output: Tensor, boxes: Tensor, argmax_idx: Tensor, grad_input: Tensor, pool_size: int
) -> None:
    """Writes the gradient of the features (N, 4 x C, H, W) into `grad_input`."""
    grad, boxes = float32(grad_output, boxes)
    channels = grad_input.shape[1] // 4
    # Each channel has its own places: the channels become images of one channel.
    total = grad.new_zeros(len(grad), 4, channels, 1, *grad_input.shape[2:])
    image = torch.arange(channels, device=grad.device)
    for n in range(len(grad)):
        for side, part, y, x in _borders(boxes[n].to(grad.dtype), pool_size, channels):
            which = argmax_idx[n, :, part, side].long()  # (C, k)
            rows = torch.arange(len(y), device=y.device)
            scatter(grad[n, :, None, part, side], total[n, side], image, y[rows, which], x[rows, which])
    grad_input.copy_(total.view(grad_input.shape))
