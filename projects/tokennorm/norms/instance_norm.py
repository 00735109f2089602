"""Instance normalization (Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization", 2016)
of token grids."""

from torch import Tensor, nn

from tokennorm.ops.moments import check_grid, image_moments, normalize, tokens_inside
from tokennorm.ops.tensors import in_float32


class InstanceNorm(nn.InstanceNorm2d):
    """Normalizes each channel of an image by its mean and variance over the image's tokens.

    It has weight and bias, unlike torch's default. For a grid of one token the output is the bias.
    """

    is_token_norm = True

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, affine=True)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        check_grid('InstanceNorm', x, self.num_features, valid)
        return in_float32(self._normalize, x, valid)

    def _normalize(self, x: Tensor, valid: Tensor | None) -> Tensor:
        mean, var = image_moments(x, tokens_inside(x, valid))
        return normalize(x, mean, var, self.eps, self.weight, self.bias)
