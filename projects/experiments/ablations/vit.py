"""ViT with norms after its layers (Dual PatchNorm's comparison), or Eq. 6 in its attention (DTN paper, Table 10a)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from tokennorm.backbones import ViT
from tokennorm.backbones.vit_attention import Attention, WindowAttention
from tokennorm.layers.block import Block, NoNorm
from tokennorm.layers.mlp import Mlp
from tokennorm.norms.dtn import attention_centers

PLACEMENTS = ('pre', 'post', 'pre+post')


class AblatedViT(ViT):
    """`ViT` with two more arguments.

    Args:
        norm_placement: Norms of the attention and the MLP: 'pre' is before the layer, 'post' after it and before the
            residual connection, 'pre+post' both; one value, or one each for attention and MLP. The Dual PatchNorm notes
            compare these nine combinations.
        rel_pos: Also 'eq6': the relative positions of Eq. 6 in the attention of the first `l_dtn` blocks, initialized
            by Eq. 7.
    """

    def __init__(self, *args: Any, norm_placement: str | Sequence[str] = 'pre', rel_pos: Any = None, **kwargs: Any):
        placements = (norm_placement,) * 2 if isinstance(norm_placement, str) else norm_placement
        if not isinstance(placements, Sequence) or len(placements) != 2 or not set(placements) <= set(PLACEMENTS):
            raise ValueError(
                f'AblatedViT: norm_placement={norm_placement!r} must be one of {", ".join(PLACEMENTS)}, or two of '
                'them, for attention and MLP'
            )
        self.placements = tuple(placements)
        self.has_eq6 = rel_pos == 'eq6'
        super().__init__(*args, rel_pos=None if self.has_eq6 else rel_pos, **kwargs)
        if self.has_eq6 and self.l_dtn == 0:
            raise ValueError("AblatedViT: rel_pos='eq6' needs l_dtn above 0: it applies to the first l_dtn blocks")

    def _attention(self, i: int, num_heads: int, window: int | None, rel_pos: tuple[int, int] | None) -> Attention:
        if not self.has_eq6 or i >= self.l_dtn:
            return super()._attention(i, num_heads, window, rel_pos)
        if window is None:
            return Eq6Attention(self.embed_dims, num_heads)
        return Eq6WindowAttention(self.embed_dims, num_heads, window)

    def _block(
        self, attn: nn.Module, arch: Mapping[str, float], drop_path: float, build: Callable[[], nn.Module]
    ) -> Block:
        pre, post = (
            [build() if kind in placement.split('+') else NoNorm() for placement in self.placements]
            for kind in ('pre', 'post')
        )
        return PlacedBlock(pre, post, attn, Mlp(self.embed_dims, arch['mlp_ratios']), drop_path)

    def reset_parameters(self) -> None:
        """As `ViT`; the positions of Eq. 6 by Eq. 7."""
        super().reset_parameters()
        for module in self.modules():
            if isinstance(module, _Eq6):
                with torch.no_grad():
                    module.position[:, 0] = -1
                    module.position[:, 1:] = 2 * attention_centers(module.num_heads)


class PlacedBlock(Block):
    """`Block` whose norms are before or after the attention and the MLP, or both.

    Args:
        pre: Token normalization layers before the attention and before the MLP.
        post: Those after them, before the residual connections.
        attn, mlp, drop_path: As in `Block`.
    """

    def __init__(
        self, pre: Sequence[nn.Module], post: Sequence[nn.Module], attn: nn.Module, mlp: nn.Module, drop_path: float
    ) -> None:
        super().__init__(pre[0], attn, pre[1], mlp, drop_path)
        self.post_norm1, self.post_norm2 = post

    def forward(self, x: Tensor, valid: Tensor | None = None, *attn_args: Any) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        x = x + self.drop_path(self.post_norm1(self.attn(self.norm1(x, valid), *attn_args), valid))
        return x + self.drop_path(self.post_norm2(self.mlp(self.norm2(x, valid)), valid))


def eq6_bias(position: Tensor, height: int, width: int) -> Tensor:
    """The exponent of Eq. 6 of the DTN paper, R a, as a bias of attention logits over a grid of H x W.

    Args:
        position: [a1, a2, a3] of each head, the factors of dx^2 + dy^2, dx and dy, (N, 3).
        height: H, in tokens.
        width: W, in tokens.

    Returns:
        Bias (N, H * W, H * W) of each query and key, where (dx, dy) is the key's position minus the query's.
    """
    a1, a2, a3 = (a[:, None, None] for a in position.unbind(dim=-1))
    y, x = (torch.arange(size, dtype=position.dtype, device=position.device) for size in (height, width))
    dy, dx = y - y[:, None], x - x[:, None]
    of_rows, of_columns = a1 * dy * dy + a3 * dy, a1 * dx * dx + a2 * dx
    bias = of_rows[:, :, None, :, None] + of_columns[:, None, :, None, :]
    return rearrange(bias, 'n h w kh kw -> n (h w) (kh kw)')


class _Eq6:
    """Adds the exponent of Eq. 6 to the logits of an attention, with a learned `position` (N, 3)."""

    def __init__(self, dims: int, num_heads: int, *args: Any) -> None:
        super().__init__(dims, num_heads, *args)
        self.position = nn.Parameter(torch.empty(num_heads, 3))

    def bias(self, q: Tensor, height: int, width: int) -> Tensor:
        """Queries (B, N, H * W, D) -> (N, H * W, H * W)."""
        return eq6_bias(self.position.float(), height, width).to(q.dtype)


class Eq6Attention(_Eq6, Attention):
    """`Attention` with Eq. 6."""


class Eq6WindowAttention(_Eq6, WindowAttention):
    """`WindowAttention` with Eq. 6."""
