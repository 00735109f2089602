"""ViT with norms after its layers (Dual PatchNorm's comparison), Eq. 6 in its attention (DTN paper, Table 10a), or
other norms before its attention only (the DTN authors' `vit_s`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.ablations.eq6 import Eq6, reset_eq6
from tokennorm.backbones import ViT
from tokennorm.backbones.vit_attention import Attention, WindowAttention
from tokennorm.layers.block import NoNorm
from tokennorm.layers.building import build_norm

PLACEMENTS = ('pre', 'post', 'pre+post')


class AblatedViT(ViT):
    """`ViT` with three more arguments.

    Args:
        norm_placement: Norms of the attention and the MLP: 'pre' is before the layer, 'post' after it and before the
            residual connection, 'pre+post' both; one value, or one each for attention and MLP. The Dual PatchNorm notes
            compare these nine combinations.
        rel_pos: Also 'eq6': the relative positions of Eq. 6 in the attention of the first `l_dtn` blocks, initialized
            by Eq. 7.
        attn_norm_cfg: The norms before the attention of all blocks, e.g. `dict(type='IN')`. None is as the others.
    """

    def __init__(
        self,
        *args: Any,
        norm_placement: str | Sequence[str] = 'pre',
        rel_pos: Any = None,
        attn_norm_cfg: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        placements = (norm_placement,) * 2 if isinstance(norm_placement, str) else norm_placement
        if not isinstance(placements, Sequence) or len(placements) != 2 or not set(placements) <= set(PLACEMENTS):
            raise ValueError(
                f'AblatedViT: norm_placement={norm_placement!r} must be one of {", ".join(PLACEMENTS)}, or two of '
                'them, for attention and MLP'
            )
        self.has_eq6 = rel_pos == 'eq6'
        super().__init__(*args, rel_pos=None if self.has_eq6 else rel_pos, norm_placement='peri', **kwargs)
        for block in self.blocks:
            for i, placement in enumerate(placements, start=1):
                for kind, name in (('pre', f'norm{i}'), ('post', f'post_norm{i}')):
                    if kind not in placement.split('+'):
                        setattr(block, name, NoNorm())
            if attn_norm_cfg:
                block.norm1 = build_norm(attn_norm_cfg, self.embed_dims, block.attn.num_heads, role='attn_norm_cfg')
        if self.has_eq6 and self.l_dtn == 0:
            raise ValueError("AblatedViT: rel_pos='eq6' needs l_dtn above 0: it applies to the first l_dtn blocks")

    def _attention(self, i: int, num_heads: int, window: int | None, rel_pos: tuple[int, int] | None) -> Attention:
        if not self.has_eq6 or i >= self.l_dtn:
            return super()._attention(i, num_heads, window, rel_pos)
        if window is None:
            return Eq6Attention(self.embed_dims, num_heads)
        return Eq6WindowAttention(self.embed_dims, num_heads, window)

    def reset_parameters(self) -> None:
        """As `ViT`; the positions of Eq. 6 by Eq. 7."""
        super().reset_parameters()
        reset_eq6(self)


class Eq6Attention(Eq6, Attention):
    """`Attention` with Eq. 6."""


class Eq6WindowAttention(Eq6, WindowAttention):
    """`WindowAttention` with Eq. 6."""
