"""LayerNorm of feature maps, for necks and heads."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm2d(nn.LayerNorm):
    """Layer normalization over the channels of each position (Ba et al., 2016), of tensors (B, C, H, W).

    No statistics cross positions, so padding does not change the result of an image, as it does with GroupNorm. Any
    config takes it as `norm_cfg=dict(type='tokennorm.LN2d')`.
    """

    def __init__(self, num_features: int, eps: float = 1e-6) -> None:
        super().__init__(num_features, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, H, W), in the memory format of channels last."""
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        x = x.permute(0, 3, 1, 2)
        return x.contiguous() if torch.compiler.is_compiling() else x  # an export would fix the graph to some sizes
