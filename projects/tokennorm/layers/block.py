"""The transformer block of all backbones, its MLP and its stochastic depth (Huang et al., "Deep Networks with
Stochastic Depth", 2016)."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


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


def hidden_dims(dims: int, mlp_ratio: float) -> int:
    """Channels between the two linear layers: `mlp_ratio` times `dims`, rounded down as in timm, at least 1."""
    return max(int(mlp_ratio * dims), 1)


class Mlp(nn.Module):
    """Linear, GELU, linear over the channels of each token."""

    def __init__(self, dims: int, mlp_ratio: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dims, hidden_dims(dims, mlp_ratio))
        self.act = nn.GELU()
        self.fc2 = nn.Linear(self.fc1.out_features, dims)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.fc2(self.act(self.fc1(x)))


class NoNorm(nn.Identity):
    """Returns its input; keeps the signature shared by all normalizers."""

    is_token_norm = True

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(...) -> (...)."""
        return x


class Block(nn.Module):
    """Norm, attention, norm, MLP, each pair with a residual connection.

    Args:
        build_norm: Builds a token normalization layer, which is called as `norm(x, valid)`.
        attn: Attention, called as `attn(x, *attn_args)`.
        mlp: MLP, (B, H, W, C) -> (B, H, W, C).
        drop_path: Stochastic depth rate of both branches.
        norm_placement: 'pre' has norms before the attention and the MLP. 'peri' also has norms after them, before the
            residual connections: x + Norm(Module(Norm(x))) (Kim et al., "Peri-LN", 2025).
        with_cp: Activation checkpointing: the backward pass computes the block again.
    """

    def __init__(
        self,
        build_norm: Callable[[], nn.Module],
        attn: nn.Module,
        mlp: nn.Module,
        drop_path: float,
        norm_placement: Literal['pre', 'peri'] = 'pre',
        with_cp: bool = False,
    ) -> None:
        super().__init__()
        if norm_placement not in ('pre', 'peri'):
            raise ValueError(f"norm_placement={norm_placement!r} must be 'pre' or 'peri'")
        self.norm1 = build_norm()
        self.attn = attn
        self.norm2 = build_norm()
        self.mlp = mlp
        self.drop_path = DropPath(drop_path)
        self.with_cp = with_cp
        self.post_norm1, self.post_norm2 = (build_norm() if norm_placement == 'peri' else NoNorm() for _ in range(2))

    def forward(self, x: Tensor, valid: Tensor | None = None, *attn_args: Any) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). `valid`: height and width of each image in tokens, int (B, 2)."""
        if self.with_cp and self.training:
            return checkpoint(self._forward, x, valid, *attn_args, use_reentrant=False)
        return self._forward(x, valid, *attn_args)

    def _forward(self, x: Tensor, valid: Tensor | None, *attn_args: Any) -> Tensor:
        x = x + self.drop_path(self.post_norm1(self.attn(self.norm1(x, valid), *attn_args), valid))
        return x + self.drop_path(self.post_norm2(self.mlp(self.norm2(x, valid)), valid))
