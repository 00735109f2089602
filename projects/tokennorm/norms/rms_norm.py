"""RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019)."""

import torch
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm


class RMSNorm(TokenNorm):
    """weight * x / sqrt(mean(x^2) + eps), for each token (Eq. 4), of tensors (..., C)."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, bias=False)

    def _normalize(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
