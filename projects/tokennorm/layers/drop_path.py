"""Stochastic depth (Huang et al., "Deep Networks with Stochastic Depth", 2016)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class DropPath(nn.Module):
    """In training, sets the branch of a sample to zero with probability `rate`, and scales it by 1 / (1 - rate)
    otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B, ...)."""
        if not self.training or self.rate == 0:
            return x
        # In float32: bfloat16 would round the probability, 0.9 to 0.8984.
        keep = torch.full((x.shape[0],) + (1,) * (x.ndim - 1), 1 - self.rate, device=x.device)
        return x * torch.bernoulli(keep).to(x.dtype) / (1 - self.rate)

    def extra_repr(self) -> str:
        return f'rate={self.rate}'


def drop_path_rates(last: float, num_blocks: int) -> Iterator[float]:
    """Yields the rate of each block, growing linearly from 0 to `last`."""
    return iter(torch.linspace(0, last, num_blocks, device='cpu').tolist())
