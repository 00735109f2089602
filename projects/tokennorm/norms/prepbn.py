"""Progressive re-parameterized batch normalization (Guo et al., "SLAB", 2024, arXiv 2405.11582)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tokennorm.norms.batch_norm import BatchNorm
from tokennorm.norms.layer_norm import TokenNorm
from tokennorm.ops.tensors import in_float32, is_recomputed


class PRepBN(TokenNorm):
    """lambda * LayerNorm(x) + (1 - lambda) * (BatchNorm(x) + alpha * x), of tensors (B, H, W, C).

    lambda falls linearly from 1 to 0 during the first `steps` forward passes in training mode. Its counter is in the
    state dict, so that a resumed training run continues with it. With gradient accumulation each batch counts. In eval
    mode lambda is 0, and the layer is one scale and shift per channel, which `experiments.prepbn` merges into the
    linear layers after it.

    Args:
        eps: Added to the variance of LayerNorm. Batch normalization has 1e-5, as published.
        steps: Forward passes until lambda is 0.

    Attributes:
        weight, bias: gamma and beta of LayerNorm (C,).
        batch_norm: Batch normalization, with its running statistics.
        alpha: (1,), initially 1.
        step: Counter of the forward passes in training mode, int64 ().
    """

    step: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, steps: int = 300_000) -> None:
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f'PRepBN: steps={steps!r} must be an integer of at least 1')
        super().__init__(num_features, eps=eps)
        self.steps = steps
        self.batch_norm = BatchNorm(num_features)
        self._add_parameter('alpha', (1,), 1.0)
        self._add_buffer('step', (), 0)

    def reset_parameters(self) -> None:
        """Sets all parameters, running statistics and the counter to their values before training."""
        super().reset_parameters()
        if hasattr(self, 'batch_norm'):  # nn.LayerNorm's constructor calls this before it exists
            self.batch_norm.bn.reset_parameters()

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). `valid`: as in `BatchNorm`."""
        return in_float32(self._normalize, x, valid)

    def _normalize(self, x: Tensor, valid: Tensor | None) -> Tensor:
        of_batch = self.batch_norm(x, valid) + self.alpha * x
        if not self.training:
            return of_batch
        recomputed = is_recomputed()
        share = (1 - (self.step - int(recomputed)) / self.steps).clamp(min=0)
        if not recomputed:
            self.step = self.step + 1  # a new tensor: a compiled backward pass computes the share again from its own
        weight, bias = (p.to(x.dtype) for p in (self.weight, self.bias))
        return share * F.layer_norm(x, self.normalized_shape, weight, bias, self.eps) + (1 - share) * of_batch

    @torch.no_grad()
    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Scale and shift (C,) of each channel in eval mode."""
        bn: Any = self.batch_norm.bn
        scale = bn.weight / torch.sqrt(bn.running_var + bn.eps)
        return scale + self.alpha, bn.bias - scale * bn.running_mean
