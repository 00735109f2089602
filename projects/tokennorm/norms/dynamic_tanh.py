"""Dynamic Tanh (Zhu et al., "Transformers without Normalization", 2025). It regularizes: Verma ("When Does Removing
LayerNorm Help?", 2026, arXiv 2604.23434) finds that it helps with little data and hurts with much."""

import torch
from torch import Tensor, nn

from tokennorm.ops.tensors import in_float32


class DynamicTanh(nn.LayerNorm):
    """weight * tanh(alpha * x) + bias for each value of tensors (..., C), without any statistics.

    Args:
        eps: Unused; upstream libraries pass it to every norm.
        alpha_init_value: Initial alpha.

    Attributes:
        alpha: (1,).
    """

    is_token_norm = True

    def __init__(self, num_features: int, eps: float = 1e-5, alpha_init_value: float = 0.5) -> None:
        super().__init__(num_features, eps=eps)
        self.alpha_init_value = alpha_init_value
        self.alpha = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets alpha to `alpha_init_value`, weight to 1 and bias to 0."""
        super().reset_parameters()
        if hasattr(self, 'alpha'):  # nn.LayerNorm's constructor calls this before alpha exists
            nn.init.constant_(self.alpha, self.alpha_init_value)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused."""
        return in_float32(self._normalize, x)

    def _normalize(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x) * self.weight + self.bias

    def extra_repr(self) -> str:
        return f'{self.normalized_shape[0]}, alpha_init_value={self.alpha_init_value}'
