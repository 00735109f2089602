"""A learning rate that follows the total batch.

- SGD: proportional to the batch (Goyal et al., 2017, "Accurate, Large Minibatch SGD", arXiv 1706.02677).
- Adam, AdamW, RMSprop and other optimizers that divide by the root of squared gradients: proportional to its square
  root (Malladi et al., 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287).
"""

import math
from typing import NamedTuple

_LINEAR = ('SGD', 'ASGD')


class LearningRate(NamedTuple):
    """A learning rate, and the reason for it in one line."""

    value: float
    reason: str


def scaled_lr(lr: float, optimizer: str, base_batch: int, total_batch: int) -> LearningRate:
    """Scales a config's learning rate to another total batch."""
    if base_batch == total_batch:
        return LearningRate(lr, f'the config sets it for {base_batch} images per step')
    ratio = total_batch / base_batch
    is_linear = optimizer in _LINEAR
    value = lr * (ratio if is_linear else math.sqrt(ratio))
    rule = 'linear in the batch (arXiv 1706.02677)' if is_linear else 'square root of the batch (arXiv 2205.10287)'
    return LearningRate(
        value, f'{lr:g} is for {base_batch} images per step, this run has {total_batch}; {optimizer}: {rule}'
    )
