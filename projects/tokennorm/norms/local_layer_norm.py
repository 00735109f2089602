"""LayerNorm with a local term, a norm of this project. docs/concepts/normalizers.md has its evidence and limits."""

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from tokennorm.norms.layer_norm import GridNorm, TokenNorm


class LocalLayerNorm(GridNorm, TokenNorm):
    """y + conv(y) with y = LayerNorm(x) and a depthwise 3 x 3 convolution, which reads zeros outside of the image.

    The kernels are zero at initialization: it starts as LayerNorm, exactly. They were trained with a higher learning
    rate than the other parameters: the configs of PVT-mini with this norm multiply it by 20, by
    `paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)})`.

    Attributes:
        depthwise: Kernels (C, 1, 3, 3).
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps)
        self._add_parameter('depthwise', (num_features, 1, 3, 3), 0.0)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        weight, bias, kernels = (p.to(x.dtype) for p in (self.weight, self.bias, self.depthwise))
        y = F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)
        source = y if inside is None else y.masked_fill(~inside, 0)
        local = F.conv2d(rearrange(source, 'b h w c -> b c h w'), kernels, padding=1, groups=x.shape[-1])
        return y + rearrange(local, 'b c h w -> b h w c').contiguous()
