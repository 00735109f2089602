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
