"""Instance normalization (Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization", 2016)
of token grids."""

import torch
from torch import Tensor, nn

from tokennorm.norms.layer_norm import GridNorm
from tokennorm.ops.moments import image_moments, normalize


class InstanceNorm(GridNorm, nn.InstanceNorm2d):
    """Normalizes each channel of an image by its mean and variance over the image's tokens.

    It has weight and bias, unlike torch's default. For a grid of one token the output is the bias.

    Args:
        unbiased: Divide the sum of squares by the count less one, as the DTN authors' code does, not by the count.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, unbiased: bool = False) -> None:
        super().__init__(num_features, eps=eps, affine=True)
        self.unbiased = unbiased

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        mean, var = image_moments(x, inside)
        if self.unbiased:
            count = x.shape[1] * x.shape[2] if inside is None else inside.sum(dim=(1, 2), keepdim=True)
            var = var * count / (torch.as_tensor(count) - 1).clamp(min=1).to(x)
        return normalize(x, mean, var, self.eps, self.weight, self.bias)
