"""Instance normalization (Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization", 2016)
of token grids."""

from torch import Tensor, nn

from tokennorm.norms.layer_norm import GridNorm
from tokennorm.ops.moments import image_moments, normalize


class InstanceNorm(GridNorm, nn.InstanceNorm2d):
    """Normalizes each channel of an image by its mean and variance over the image's tokens.

    It has weight and bias, unlike torch's default. For a grid of one token the output is the bias.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps, affine=True)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        mean, var = image_moments(x, inside)
        return normalize(x, mean, var, self.eps, self.weight, self.bias)
