"""What the blocks of several backbones share."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def attend_with_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention in the windows of a batch of images, with an additive bias.

    torch's own has no fast form on a CPU for a bias that needs a gradient: it is written out there.

    Args:
        q: Queries (B * M, N, T, D): M windows an image, N heads of D channels, T tokens a window.
        k: Keys, of the same shape.
        v: Values, of the same shape.
        bias: Of each window and head, (M, N, T, T), or (1, N, T, T) where all windows have the same.

    Returns:
        (B * M, N, T, D).
    """
    if q.device.type == 'cpu' and bias.requires_grad:
        logits = (q * q.shape[-1] ** -0.5) @ k.mT
        logits = (logits.unflatten(0, (-1, len(bias))) + bias).flatten(0, 1)
        return logits.softmax(dim=-1).to(v.dtype) @ v
    if len(bias) > 1:
        bias = bias.repeat(len(q) // len(bias), 1, 1, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


def pad_grid(x: Tensor, size: int) -> Tensor:
    """Zeros at the right and the bottom until `size` divides both sides of (B, H, W, C)."""
    height, width = x.shape[1:3]
    if height % size == 0 and width % size == 0:
        return x  # F.pad would copy
    return F.pad(x, (0, 0, 0, -width % size, 0, -height % size))


def run_block(block: nn.Module, *args: Any, recompute: bool) -> Tensor:
    """The block's result; with `recompute` the backward pass computes it again, for less memory."""
    return checkpoint(block, *args, use_reentrant=False) if recompute else block(*args)


class Mlp(nn.Module):
    """Linear, GELU, Linear over the channels of each token, (..., C) -> (..., C)."""

    def __init__(self, dims: int, hidden_dims: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dims, hidden_dims)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dims, dims)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class DropPath(nn.Module):
    """Stochastic depth (Huang et al., 2016): in training a sample's branch is zero with probability `rate`, else scaled
    by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        # In float32: bfloat16 would round the probability, 0.9 to 0.8984.
        keep = torch.full((x.shape[0],) + (1,) * (x.ndim - 1), 1 - self.rate, device=x.device)
        return x * torch.bernoulli(keep).to(x.dtype) / (1 - self.rate)

    def extra_repr(self) -> str:
        return f'rate={self.rate}'


def drop_path_rates(last: float, num_blocks: int) -> Iterator[float]:
    """The rate of each block, growing linearly from 0 to `last`."""
    return iter(torch.linspace(0, last, num_blocks, device='cpu').tolist())
