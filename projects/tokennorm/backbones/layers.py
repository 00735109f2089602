"""What the blocks of several backbones share."""

import torch
from torch import Tensor, nn


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
        keep = torch.full((x.shape[0],) + (1,) * (x.ndim - 1), 1 - self.rate, dtype=x.dtype, device=x.device)
        return x * torch.bernoulli(keep) / (1 - self.rate)

    def extra_repr(self) -> str:
        return f'rate={self.rate}'
