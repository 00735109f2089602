"""ScaleNorm (Nguyen and Salazar, "Transformers without Tears: Improving the Normalization of Self-Attention", 2019)."""

import torch
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm


class ScaleNorm(TokenNorm):
    """``g * x / |x|`` for each token of tensors (..., C), with one learned length g for all tokens.

    Args:
        eps: Lower bound of the divisor ``|x|``.
        per_channel: One g for each channel, as in the DTN authors' code and in Table 7 (b) of their paper.

    Attributes:
        weight: g (1,), or (C,) with `per_channel`, initially sqrt(C), the length of a token of unit variance.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, per_channel: bool = False) -> None:
        super().__init__(num_features, eps=eps, elementwise_affine=False)
        self._add_parameter('weight', (num_features if per_channel else 1,), num_features**0.5)

    def _normalize(self, x: Tensor) -> Tensor:
        return x * (self.weight / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=self.eps))
