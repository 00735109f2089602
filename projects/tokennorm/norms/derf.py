"""Dynamic erf (Chen et al., "Stronger Normalization-Free Transformers", 2025, arXiv 2512.10938)."""

import torch
from torch import Tensor

from tokennorm.norms.dynamic_tanh import DynamicTanh


class Derf(DynamicTanh):
    """weight * erf(alpha * x + shift) + bias for each value of tensors (..., C), without any statistics.

    Args:
        eps: Unused; upstream libraries pass it to every norm.
        alpha_init_value: Initial alpha, (1,).
        shift_init_value: Initial shift, (1,).
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, alpha_init_value: float = 0.5, shift_init_value: float = 0.0
    ) -> None:
        super().__init__(num_features, eps, alpha_init_value)
        self.shift_init_value = shift_init_value
        self._add_parameter('shift', (1,), float(shift_init_value))

    def _normalize(self, x: Tensor) -> Tensor:
        return torch.erf(self.alpha * x + self.shift) * self.weight + self.bias

    def extra_repr(self) -> str:
        return f'{super().extra_repr()}, shift_init_value={self.shift_init_value}'
