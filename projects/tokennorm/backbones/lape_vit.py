"""LaPE (Yu et al., "LaPE: Layer-adaptive Position Embedding for Vision Transformers with Independent Layer
Normalization", 2022, arXiv 2212.05262) in the ViT."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from tokennorm.backbones.vit import ViT
from tokennorm.layers.block import Block
from tokennorm.norms import LayerNorm
from tokennorm.padding import valid_tokens
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

    block_type = LaPEBlock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.out_type == 'cls_token' and self.l_dtn:
            raise ValueError(f"LaPEViT: l_dtn={self.l_dtn} must be 0 for out_type='cls_token'")
        if getattr(self.patch_embed, 'norm_after_positions', False):
            raise ValueError("LaPEViT: stem_cfg: norms='post_pos_embed' must be another")

    def _outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_channels, H, W) -> feature maps of `out_indices`, (B, C_i, H_i, W_i), or the class token (B, C)."""
        valid = valid_tokens(x, self.patch_size)
        x = self.patch_embed(x)
        positions = self.resized_pos_embed(*x.shape[1:3])
        if self.out_type == 'cls_token':
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x.flatten(1, 2)], dim=1)[:, None]
            positions, valid = torch.cat([self.pos_embed[:, :1], positions.flatten(1, 2)], dim=1)[:, None], None
        outs = []
        for i, block in enumerate(self.blocks):
            positions = block.pe_norm(positions)
            x = block(x, valid, positions)
            if self.out_type == 'featmap' and i in self.out_indices:
                outs.append(rearrange(x, 'b h w c -> b c h w'))
                if i == max(self.out_indices):
                    return tuple(outs)
        return (self.norm(x)[:, 0, 0],)
