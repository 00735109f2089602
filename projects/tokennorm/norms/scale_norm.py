"""ScaleNorm (Nguyen and Salazar, "Transformers without Tears: Improving the Normalization of Self-Attention", 2019)."""

import torch
from torch import Tensor, nn

from tokennorm.ops.precision import in_float32


class ScaleNorm(nn.LayerNorm):
    """g * x / |x|, for each token: one learned length for all, of tensors (..., C).

    Args:
        num_features: Channels C.
        num_heads: Not used: a place for it in the signature that token normalizers share.
        eps: The least |x| that is divided by.

    Attributes:
        weight: g (1,); sqrt(C) at the start.
    """

    def __init__(self, num_features: int, num_heads: int = 1, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, elementwise_affine=False)
        self.weight = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """g = sqrt(C), the length of a token of unit variance."""
        if self.weight is not None:  # as it is in nn.LayerNorm's constructor
            nn.init.constant_(self.weight, self.normalized_shape[0] ** 0.5)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid`, the image's part of a grid, does not matter to statistics within tokens."""
        return in_float32(self._normalize, x)

    def _normalize(self, x: Tensor) -> Tensor:
        return x * (self.weight / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=self.eps))

    def extra_repr(self) -> str:
        return f'{self.normalized_shape[0]}, eps={self.eps}'
