"""Focal losses (Lin et al. 2017) and their gradients in closed form: only the input is kept for the backward pass."""

import torch
from torch import Tensor

from .precision import float32


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=torch.finfo(torch.float32).tiny).log()


def _class_weights(weight: Tensor, target: Tensor) -> Tensor:
    """Returns the weight per target, (N,). The background label, which is the number of classes, has weight 1."""
    return torch.cat([weight, weight.new_ones(1)])[target]


def _combine(output: Tensor, target: Tensor, weight: Tensor, alpha: float, positive: Tensor, negative: Tensor) -> None:
    is_class = target[:, None] == torch.arange(positive.shape[1], device=target.device)
    result = torch.where(is_class, -alpha * positive, -(1 - alpha) * negative)
    if weight.numel():
        result *= _class_weights(weight, target)[:, None]
    output.copy_(result)


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Writes the loss per element, (N, C), of logits (N, C) and labels (N,)."""
    logits, weight = float32(input, weight)
    p = logits.sigmoid()
    _combine(output, target, weight, alpha, (1 - p) ** gamma * _log(p), p**gamma * _log(1 - p))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    logits, weight = float32(input, weight)
    p = logits.sigmoid()
    positive = (1 - p) ** gamma * (1 - p - gamma * p * _log(p))
    negative = p**gamma * (gamma * (1 - p) * _log(1 - p) - p)
    _combine(grad_input, target, weight, alpha, positive, negative)


def softmax_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Writes the loss per row, (N,), of probabilities (N, C). Labels outside [0, C) have loss 0."""
    p, weight = _of_target(input, target, weight)
    output.copy_(-alpha * (1 - p) ** gamma * _log(p) * weight)


def softmax_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, buff: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    p, weight = _of_target(input, target, weight)
    relative = (_log(p) / (1 - p)).masked_fill(p == 1, -1)  # its limit there: with a gamma up to 1 mmcv returns NaN
    slope = alpha * (1 - p) ** gamma * (gamma * p * relative - 1) * weight
    is_class = target[:, None] == torch.arange(input.shape[1], device=target.device)
    grad_input.copy_(slope[:, None] * (is_class.to(slope) - input))


def _of_target(input: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the probability and the weight of each row's label, (N,). Labels outside [0, C) have weight 0."""
    p, weight = float32(input, weight)
    valid = (target >= 0) & (target < p.shape[1])
    label = target.where(valid, 0)
    weight = weight[label] if weight.numel() else p.new_ones(len(p))
    return p.gather(1, label[:, None])[:, 0], weight * valid
