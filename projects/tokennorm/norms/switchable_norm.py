"""Switchable Normalization (Luo et al., "Switchable Normalization for Learning-to-Normalize Deep Representation", 2019)
of token grids."""

import torch
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm
from tokennorm.ops.moments import check_grid, image_moments, merge_moments, normalize, tokens_inside
from tokennorm.ops.tensors import in_float32


class SwitchableNorm(TokenNorm):
    """Normalizes by a learned mixture of the statistics of instance, layer and batch normalization (Eqs. 3 to 5).

    The statistics of layer normalization are the paper's, over all tokens and channels of an image. In eval mode the
    statistics of batch normalization are moving averages over training, as in the authors' code. (The paper averages
    over some batches with frozen weights instead.) Each rank has its own moving averages.

    Args:
        momentum: Weight of a batch in the moving averages.

    Attributes:
        mean_weight, var_weight: Logits of the mixture, in the order above, (3,); initially equal.
        running_mean, running_var: Moving averages of the batches' mean and (biased) variance, (C,).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps=eps)
        self.momentum = momentum
        self._add_parameter('mean_weight', (3,), 1.0)
        self._add_parameter('var_weight', (3,), 1.0)
        self._add_buffer('running_mean', (num_features,), 0.0)
        self._add_buffer('running_var', (num_features,), 1.0)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        check_grid('SwitchableNorm', x, self.normalized_shape[0], valid)
        return in_float32(self._normalize, x, valid)

    def _normalize(self, x: Tensor, valid: Tensor | None) -> Tensor:
        inside = tokens_inside(x, valid)
        of_image = image_moments(x, inside)
        of_layer = merge_moments(*of_image, dim=-1)
        if self.training:
            count = None if inside is None else inside.sum(dim=(1, 2), keepdim=True).to(x.dtype)
            of_batch = merge_moments(*of_image, dim=0, share=None if count is None else count / count.sum())
            self._track(*of_batch)
        else:
            of_batch = self.running_mean, self.running_var
        mean, var = (
            sum(share * moment for share, moment in zip(logits.softmax(dim=0), moments, strict=True))
            for logits, moments in zip(
                (self.mean_weight, self.var_weight), zip(of_image, of_layer, of_batch, strict=True), strict=True
            )
        )
        return normalize(x, mean, var, self.eps, self.weight, self.bias)

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor) -> None:
        self.running_mean.lerp_(mean.flatten().to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(var.flatten().to(self.running_var.dtype), self.momentum)
