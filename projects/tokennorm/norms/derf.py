"""Dynamic erf (Chen et al., "Stronger Normalization-Free Transformers", 2025, arXiv 2512.10938)."""

import torch
from torch import Tensor, nn

from tokennorm.norms.dynamic_tanh import DynamicTanh


class Derf(DynamicTanh):
    """weight * erf(alpha * x + shift) + bias for each value of tensors (..., C), without any statistics.

    Args:
        eps: Unused; upstream libraries pass it to every norm.
        alpha_init_value: Initial alpha.
        shift_init_value: Initial shift.

    Attributes:
        alpha, shift: (1,).
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, alpha_init_value: float = 0.5, shift_init_value: float = 0.0
    ) -> None:
        super().__init__(num_features, eps, alpha_init_value)
        self.shift_init_value = shift_init_value
        self.shift = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets alpha and shift to their initial values, weight to 1 and bias to 0."""
        super().reset_parameters()
        if hasattr(self, 'shift'):  # the parent's constructor calls this before it exists
            nn.init.constant_(self.shift, self.shift_init_value)

    def _normalize(self, x: Tensor) -> Tensor:
        return torch.erf(self.alpha * x + self.shift) * self.weight + self.bias

    def extra_repr(self) -> str:
        return f'{super().extra_repr()}, shift_init_value={self.shift_init_value}'
