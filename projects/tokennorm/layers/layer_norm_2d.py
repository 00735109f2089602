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
        """(B, C, H, W) -> the same, with channels last if x has them, else contiguous, as mmcv's RoIAlign expects."""
        out = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        out = out.permute(0, 3, 1, 2)
        if torch.compiler.is_compiling():  # to ask for strides would fix the graph of an export to some sizes
            return out.contiguous()
        return out if x.is_contiguous(memory_format=torch.channels_last) else out.contiguous()
