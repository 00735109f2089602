"""PowerNorm (Shen et al., "PowerNorm: Rethinking Batch Normalization in Transformers", 2020) of token grids."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokennorm.norms.layer_norm import GridNorm, TokenNorm


def batch_mean(x: Tensor, inside: Tensor | None) -> Tensor:
    """Mean of (B, H, W, C) over the tokens of the batch that are `inside`, (C,)."""
    if inside is None:
        return x.mean(dim=(0, 1, 2))
    return (x * inside).sum(dim=(0, 1, 2)) / inside.sum()


class DivideByPower(torch.autograd.Function):
    """z = x / psi, with a custom backward that approximates the derivative through the running psi.

    With the batch's own psi the gradient is (g - mean(g z) z) / psi. With a running psi it is only g / psi, which lets
    the gradient grow along z. The paper uses (g - nu z) / psi, where nu is a running mean of mean(g z).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, psi: Tensor, nu: Tensor, alpha: float, inside: Tensor | None) -> Tensor:
        """(B, H, W, C), psi and nu (C,). The backward pass updates nu in place, with a weight of 1 - alpha.

        Non-finite gradients do not change nu: loss scaling skips the steps that have them.
        """
        z = x / psi
        ctx.save_for_backward(z, psi, inside)
        ctx.nu, ctx.alpha = nu, alpha
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, psi, inside = ctx.saved_tensors
        grad = grad - ctx.nu * z
        step = (1 - ctx.alpha) * batch_mean(grad * z, inside)
        ctx.nu += torch.where(step.isfinite(), step, 0)
        return grad / psi, None, None, None, None


class PowerNorm(GridNorm, TokenNorm):
    """Divides each channel by the root of its running quadratic mean over the tokens of the batches, also in training.

    As in the authors' code, each token is first divided by its root mean square, or each group of its channels by
    theirs, and during a warm-up each channel is divided by the batch's own quadratic mean. The backward pass is the
    paper's approximation, divided by the psi of the forward pass; the authors' code divides by the batch's psi. Each
    rank has its own statistics. Padding is normalized by the statistics of the images. With activation checkpointing
    (`with_cp`) every iteration counts twice, and the backward pass uses the quadratic mean as it is after the forward
    pass.

    Args:
        alpha_fwd: Weight of the past in the running quadratic mean.
        alpha_bkw: Weight of the past in the running statistic of the backward pass.
        warmup_iters: Training iterations with the batch's own quadratic mean.
        num_groups: Groups of consecutive channels, each divided by its own root mean square first; divides C.

    Attributes:
        running_phi: psi^2, the running quadratic mean (C,).
        running_nu: nu (C,), the running mean of gradient times output.
        iters: Training iterations so far.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        alpha_fwd: float = 0.9,
        alpha_bkw: float = 0.9,
        warmup_iters: int = 10000,
        num_groups: int = 1,
    ) -> None:
        if not isinstance(num_groups, int) or num_groups < 1 or num_features % num_groups:
            raise ValueError(f'PowerNorm: num_groups={num_groups!r} must divide num_features={num_features}')
        super().__init__(num_features, eps=eps)
        self.num_groups = num_groups
        self.alpha_fwd = alpha_fwd
        self.alpha_bkw = alpha_bkw
        self.warmup_iters = warmup_iters
        self._add_buffer('running_phi', (num_features,), 1.0)
        self._add_buffer('running_nu', (num_features,), 0.0)
        self._add_buffer('iters', (), 0)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        groups = x.unflatten(-1, (self.num_groups, -1))
        x = (groups * torch.rsqrt(groups.square().mean(dim=-1, keepdim=True) + self.eps)).flatten(-2)
        if not self.training or not x.numel():  # an empty batch has no statistics
            return x * torch.rsqrt(self.running_phi.to(x.dtype) + self.eps) * self.weight + self.bias
        psi = self._next_psi(batch_mean(x.detach().square(), inside))
        return DivideByPower.apply(x, psi, self.running_nu, self.alpha_bkw, inside) * self.weight + self.bias

    def _next_psi(self, phi: Tensor) -> Tensor:
        """Returns the divisor of a batch with quadratic mean `phi`, and updates the running mean with `phi`."""
        self.iters += 1
        in_warmup = self.iters <= self.warmup_iters
        psi = torch.where(in_warmup, phi, self.running_phi).add(self.eps).sqrt()
        # During warm-up: the cumulative mean. Then, always, an exponential step.
        average = self.running_phi + (phi - self.running_phi) / self.iters
        running = torch.where(self.iters < self.warmup_iters, average, self.running_phi)
        self.running_phi.copy_(running.lerp(phi.to(running.dtype), 1 - self.alpha_fwd))
        return psi
