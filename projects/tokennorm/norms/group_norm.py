"""Group normalization (Wu and He, "Group Normalization", 2018) of token grids."""

from torch import Tensor, nn

from tokennorm.norms.layer_norm import GridNorm
from tokennorm.ops.moments import image_moments, merge_moments, normalize


class GroupNorm(GridNorm, nn.GroupNorm):
    """Normalizes each group of channels of an image by its mean and variance over the image's tokens.

    Args:
        num_groups: Groups of consecutive channels; divides C.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, num_groups: int = 32) -> None:
        super().__init__(num_groups, num_features, eps=eps)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        of_channels = image_moments(x, inside)
        of_groups = merge_moments(*(m.unflatten(-1, (self.num_groups, -1)) for m in of_channels), dim=-1)
        channels = self.num_channels // self.num_groups
        mean, var = (m.expand(*m.shape[:-1], channels).flatten(-2) for m in of_groups)
        return normalize(x, mean, var, self.eps, self.weight, self.bias)
