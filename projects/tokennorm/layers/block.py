"""The transformer block of all backbones."""

from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tokennorm.layers.drop_path import DropPath


class NoNorm(nn.Identity):
    """Returns its input; keeps the signature shared by all normalizers."""

    is_token_norm = True

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(...) -> (...)."""
        return x


class Block(nn.Module):
    """Norm, attention, norm, MLP, each pair with a residual connection.

    Args:
        norm1: Token normalization layer before the attention, called as `norm1(x, valid)`.
        attn: Attention, called as `attn(x, *attn_args)`.
        norm2: Token normalization layer before the MLP.
        mlp: MLP, (B, H, W, C) -> (B, H, W, C).
        drop_path: Stochastic depth rate of both branches.
    """

    def __init__(
        self,
        norm1: nn.Module,
        attn: nn.Module,
        norm2: nn.Module,
        mlp: nn.Module,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = norm1
        self.attn = attn
        self.norm2 = norm2
        self.mlp = mlp
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, valid: Tensor | None = None, *attn_args: Any) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). `valid`: height and width of each image in tokens, int (B, 2)."""
        x = x + self.drop_path(self.attn(self.norm1(x, valid), *attn_args))
        return x + self.drop_path(self.mlp(self.norm2(x, valid)))


def run_block(block: nn.Module, *args: Any, recompute: bool) -> Tensor:
    """The block's output. With `recompute`, activation checkpointing: the backward pass runs the block again."""
    return checkpoint(block, *args, use_reentrant=False) if recompute else block(*args)
