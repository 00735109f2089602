"""ScaleNorm (Nguyen and Salazar, "Transformers without Tears: Improving the Normalization of Self-Attention", 2019)."""

import torch
from torch import Tensor, nn

from tokennorm.ops.tensors import in_float32


class ScaleNorm(nn.LayerNorm):
    """``g * x / |x|`` for each token of tensors (..., C), with one learned length g for all tokens.

    Args:
        eps: Lower bound of the divisor ``|x|``.

    Attributes:
        weight: g (1,), initially sqrt(C).
    """

    is_token_norm = True

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, elementwise_affine=False)
        self.weight = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets g to sqrt(C), the length of a token of unit variance."""
        if self.weight is not None:  # nn.LayerNorm's constructor calls this before g exists
            nn.init.constant_(self.weight, self.normalized_shape[0] ** 0.5)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused: the statistics are within tokens."""
        return in_float32(self._normalize, x)

    def _normalize(self, x: Tensor) -> Tensor:
        return x * (self.weight / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=self.eps))
