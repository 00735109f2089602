"""LayerNorm with the constructor that all normalizers of token grids share."""

from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the channels of each token (Ba et al., 2016), of tensors (..., C).

    Args:
        num_features: Channels C.
        num_heads: Not used: a place for it in the signature that token normalizers share.
        eps: Added to the variance.
    """

    def __init__(self, num_features: int, num_heads: int = 1, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid`, the image's part of a grid, does not matter to statistics within tokens."""
        return super().forward(x)
