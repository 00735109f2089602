"""Dynamic Tanh (Zhu et al., "Transformers without Normalization", 2025). It regularizes: Verma ("When Does Removing
LayerNorm Help?", 2026, arXiv 2604.23434) finds that it helps with little data and hurts with much."""

import torch
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm


class DynamicTanh(TokenNorm):
    """weight * tanh(alpha * x) + bias for each value of tensors (..., C), without any statistics.

    Args:
        eps: Unused; upstream libraries pass it to every norm.
        alpha_init_value: Initial alpha, (1,).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, alpha_init_value: float = 0.5) -> None:
        super().__init__(num_features, eps=eps)
        self.alpha_init_value = alpha_init_value
        self._add_parameter('alpha', (1,), float(alpha_init_value))

    def _normalize(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x) * self.weight + self.bias

    def extra_repr(self) -> str:
        return f'{self.normalized_shape[0]}, alpha_init_value={self.alpha_init_value}'
