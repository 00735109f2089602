"""LaPE (Yu et al., "LaPE: Layer-adaptive Position Embedding for Vision Transformers with Independent Layer
Normalization", 2022, arXiv 2212.05262) in the ViT."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tokennorm.backbones.vit import ViT
from tokennorm.layers.block import Block
from tokennorm.layers.positions import positions_of, prepend_token
from tokennorm.norms import LayerNorm
from tokennorm.registry import MODELS


class LaPEBlock(Block):
    """x + Attention(Norm(x) + p), then the MLP, with the position embedding p of this layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pe_norm = LayerNorm(self.attn.proj.out_features, eps=1e-6)

    def _forward(self, x: Tensor, valid: Tensor | None, *attn_args: Any) -> Tensor:
        (positions,) = attn_args
        x = x + self.drop_path(self.post_norm1(self.attn(self.norm1(x, valid) + positions), valid))
        return x + self.drop_path(self.post_norm2(self.mlp(self.norm2(x, valid)), valid))


@MODELS.register_module()
class LaPEViT(ViT):
    """`ViT` whose position embedding is not added to the tokens, but before the attention of every block.

    Each block has a LayerNorm of its own for the position embedding, and passes the result on: p_l = LN_l(p_(l-1)), as
    in the authors' code. DeiT's weights load with `allow_missing=['*.pe_norm.*']` in `init_cfg`. The arguments are
    those of `ViT`. A classifier needs `l_dtn=0`: its class token has a position embedding from the first block on.
    """

    adds_positions = False
    block_type = LaPEBlock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.out_type == 'cls_token' and self.l_dtn:
            raise ValueError(f"LaPEViT: l_dtn={self.l_dtn} must be 0 for out_type='cls_token'")

    def _add_positions(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Sequence[tuple[Tensor, ...]]]:
        positions = positions_of(self, x)
        if self.out_type == 'cls_token':
            positions = prepend_token(self.pos_embed[:, :1], positions)
        of_blocks = []
        for block in self.blocks:
            positions = block.pe_norm(positions)
            of_blocks.append((positions,))
        return x, of_blocks

    def _class_token(self) -> Tensor:
        return self.cls_token
