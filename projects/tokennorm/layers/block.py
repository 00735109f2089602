"""The transformer block of all backbones."""

from collections.abc import Callable
from typing import Any, Literal

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
        build_norm: Builds a token normalization layer, which is called as `norm(x, valid)`.
        attn: Attention, called as `attn(x, *attn_args)`.
        mlp: MLP, (B, H, W, C) -> (B, H, W, C).
        drop_path: Stochastic depth rate of both branches.
        norm_placement: 'pre' has norms before the attention and the MLP. 'peri' also has norms after them, before the
            residual connections: x + Norm(Module(Norm(x))) (Kim et al., "Peri-LN", 2025).
    """

    def __init__(
        self,
        build_norm: Callable[[], nn.Module],
        attn: nn.Module,
        mlp: nn.Module,
        drop_path: float,
        norm_placement: Literal['pre', 'peri'] = 'pre',
    ) -> None:
        super().__init__()
        if norm_placement not in ('pre', 'peri'):
            raise ValueError(f"norm_placement={norm_placement!r} must be 'pre' or 'peri'")
        self.norm1 = build_norm()
        self.attn = attn
        self.norm2 = build_norm()
        self.mlp = mlp
        self.drop_path = DropPath(drop_path)
        self.post_norm1, self.post_norm2 = (build_norm() if norm_placement == 'peri' else NoNorm() for _ in range(2))

    def forward(self, x: Tensor, valid: Tensor | None = None, *attn_args: Any) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). `valid`: height and width of each image in tokens, int (B, 2)."""
        x = x + self.drop_path(self.post_norm1(self.attn(self.norm1(x, valid), *attn_args), valid))
        return x + self.drop_path(self.post_norm2(self.mlp(self.norm2(x, valid)), valid))


def run_block(block: nn.Module, *args: Any, recompute: bool) -> Tensor:
    """The block's output. With `recompute`, activation checkpointing: the backward pass runs the block again."""
    return checkpoint(block, *args, use_reentrant=False) if recompute else block(*args)
