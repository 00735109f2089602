"""Temporal shift of groups of channels (Shao et al. 2020, Temporal Interlacing Network)."""

import torch
from torch import Tensor


def _shift(values: Tensor, shift: Tensor) -> Tensor:
    """Returns values (N, T, C, HW) later by `shift` (N, G) frames, for G groups of channels. Empty frames are 0."""
    grouped = values.unflatten(2, (shift.shape[1], -1))  # (N, T, G, C / G, HW)
    frames = values.shape[1]
    source = torch.arange(frames, device=values.device)[:, None] - shift.long()[:, None]  # (N, T, G)
    inside = ((source >= 0) & (source < frames))[..., None, None]
    index = source.clamp(0, frames - 1)[..., None, None].expand_as(grouped)
    return torch.where(inside, grouped.gather(1, index), 0).flatten(2, 3)


def tin_shift_forward(input: Tensor, shift: Tensor, output: Tensor) -> None:
    """Writes frame t of `input` (N, T, C, HW) into frame t + shift of `output`."""
    output.copy_(_shift(input, shift))


def tin_shift_backward(grad_output: Tensor, shift: Tensor, grad_input: Tensor) -> None:
    """Writes frame t + shift of the gradient into frame t. mmcv's kernel moves it in the other direction."""
    grad_input.copy_(_shift(grad_output, -shift))
