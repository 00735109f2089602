"""LayerNorm with the constructor that all normalizers of token grids share."""

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the channels of each token (Ba et al., 2016), of tensors (..., C).

    Args:
        device, dtype: Of the parameters, as in `nn.LayerNorm`.
    """

    is_token_norm = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps=eps, device=device, dtype=dtype)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused: the statistics are within tokens."""
        return super().forward(x)
