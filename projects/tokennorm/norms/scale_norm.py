"""ScaleNorm (Nguyen and Salazar, "Transformers without Tears: Improving the Normalization of Self-Attention", 2019)."""

import torch
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm


class ScaleNorm(TokenNorm):
    """``g * x / |x|`` for each token of tensors (..., C), with one learned length g for all tokens.

    Args:
        eps: Lower bound of the divisor ``|x|``.

    Attributes:
        weight: g (1,), initially sqrt(C), the length of a token of unit variance.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, elementwise_affine=False)
        self._add_parameter('weight', (1,), num_features**0.5)

    def _normalize(self, x: Tensor) -> Tensor:
        return x * (self.weight / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=self.eps))
