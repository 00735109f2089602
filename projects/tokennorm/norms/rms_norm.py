"""RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019)."""

import torch
from torch import Tensor, nn

from tokennorm.ops.tensors import in_float32


class RMSNorm(nn.LayerNorm):
    """weight * x / sqrt(mean(x^2) + eps), for each token (Eq. 4), of tensors (..., C).

    Args:
        eps: Added to the mean of the squares.
    """

    is_token_norm = True

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, bias=False)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused: the statistics are within tokens."""
        return in_float32(self._normalize, x)

    def _normalize(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
