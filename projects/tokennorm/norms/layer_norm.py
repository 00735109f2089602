"""LayerNorm with the constructor that all normalizers of token grids share."""

from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the channels of each token (Ba et al., 2016), of tensors (..., C)."""

    is_token_norm = True

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused: the statistics are within tokens."""
        return super().forward(x)
