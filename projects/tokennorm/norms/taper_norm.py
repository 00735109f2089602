"""TaperNorm (Kanavalau et al., "Gated Removal of Normalization in Transformers", 2026, arXiv 2602.10408).

The equations are from two descriptions of the paper by others, which agree, not from its own text.
"""

import math

import torch
import torch.distributed as dist
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm
from tokennorm.ops.moments import finite_padding, tokens_inside
from tokennorm.ops.tensors import in_float32, is_recomputed


class TaperNorm(TokenNorm):
    """g weight x / r + (1 - g) c scale x with r = sqrt(mean(x^2) + eps), for each token of tensors (..., C).

    This is the paper's form for RMSNorm. The gate g is 1 for the first `warmup` forward passes in training mode, then
    falls to 0 by a cosine until pass `steps`. Then the layer is one factor per channel, which `experiments.prepbn`
    merges into the linear layers after it. In the warm-up `scale` follows `weight`, and c is the mean of (weight x)^2 /
    r divided by that of (weight x)^2, which brings the two terms closest. Their momentum of 0.01 and the default
    lengths are this project's. Eval mode keeps g.

    Args:
        warmup, steps: Forward passes with g = 1, and until g = 0: at most the iterations of the training run.

    Attributes:
        weight, scale: gamma and tilde gamma (C,), initially 1.
        energy, step: The two averages (2,), and the counter of the forward passes in training mode, int64 ().
    """

    energy: Tensor
    step: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, warmup: int = 30_000, steps: int = 300_000) -> None:
        if not (isinstance(warmup, int) and isinstance(steps, int) and 1 <= warmup < steps):
            raise ValueError(f'TaperNorm: warmup={warmup!r} must be an integer of at least 1, below steps={steps!r}')
        super().__init__(num_features, eps=eps, bias=False)
        self.warmup, self.steps = warmup, steps
        self._add_parameter('scale', (num_features,), 1.0)
        self._add_buffer('energy', (2,), 0.0)
        self._add_buffer('step', (), 0)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). The averages leave out the tokens outside of `valid`."""
        inside = tokens_inside(x, valid)
        return in_float32(self._normalize, finite_padding(x, inside), inside)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        rms = (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        recomputed = is_recomputed()
        step = (self.step - int(recomputed and self.training)).to(x.dtype)
        progress = ((step - self.warmup) / (self.steps - self.warmup)).clamp(0, 1)
        gate = (1 + torch.cos(math.pi * progress)) / 2
        if self.training and not recomputed:
            self._count(x if inside is None else x * inside, rms)
        return (gate * self.weight / rms + (1 - gate) * self._factor()) * x

    @torch.no_grad()
    def _count(self, x: Tensor, rms: Tensor) -> None:
        squares = (self.weight * x).square().sum(-1, keepdim=True)
        energy = torch.stack([(squares / rms).mean(), squares.mean()]) if x.numel() else torch.zeros_like(self.energy)
        if dist.is_initialized():
            dist.all_reduce(energy)  # a sum over the ranks cancels out in the ratio, as zeros at first do
        self.scale.data.copy_(torch.where(self.step <= self.warmup, self.weight, self.scale))
        # New tensors: a compiled backward pass computes the gate again, from what these hold by then.
        self.energy = self.energy + ((energy - self.energy) * (self.step < self.warmup) * 0.01).to(self.energy.dtype)
        self.step = self.step + 1

    def _factor(self) -> Tensor:
        return self.energy[0] / self.energy[1].clamp(min=torch.finfo(self.energy.dtype).tiny) * self.scale

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Scale and shift (C,) of each channel; raises a ValueError before the gate is 0."""
        if self.step < self.steps:
            raise ValueError(f'TaperNorm: step={int(self.step)} must reach steps={self.steps} before it can be merged')
        return self._factor().detach(), torch.zeros_like(self.weight)
