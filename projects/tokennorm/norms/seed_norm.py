"""SeeDNorm (Cai et al., "SeeDNorm: Self-Rescaled Dynamic Normalization", 2025, arXiv 2510.22777).

The equation is from descriptions of the paper by others, which agree, not from its own text.
"""

import torch
from torch import Tensor

from tokennorm.norms.layer_norm import TokenNorm


class SeeDNorm(TokenNorm):
    """(tanh(x . beta) alpha + gamma) x / sqrt(mean(x^2) + eps), for each token of tensors (..., C).

    This is RMSNorm whose scale depends on the token. With several `parts` (the paper's multi-head form, which it uses
    for images) x, alpha and beta are split into that many vectors of consecutive channels, with one product x . beta
    each. In ViT the paper also drops the dynamic term at random and divides it by C; this layer does neither. The paper
    decays alpha and beta but not gamma; `norm_decay_mult=0` spares all three.

    Args:
        parts: Number of vectors; divides C. In the paper's ViT-B 16 are best, and 1 does not converge.

    Attributes:
        weight: gamma (C,), initially 1.
        alpha: (C,), initially 1.
        beta: (C,), initially 0: the layer starts as RMSNorm.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, parts: int = 16) -> None:
        if not isinstance(parts, int) or parts < 1 or num_features % parts:
            raise ValueError(f'SeeDNorm: parts={parts!r} must divide num_features={num_features}')
        super().__init__(num_features, eps=eps, bias=False)
        self.parts = parts
        self._add_parameter('alpha', (num_features,), 1.0)
        self._add_parameter('beta', (num_features,), 0.0)

    def _normalize(self, x: Tensor) -> Tensor:
        products = (x * self.beta).unflatten(-1, (self.parts, -1)).sum(-1)
        dynamic = torch.tanh(products).repeat_interleave(x.shape[-1] // self.parts, dim=-1) * self.alpha
        return (dynamic + self.weight) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def extra_repr(self) -> str:
        return f'{super().extra_repr()}, parts={self.parts}'
