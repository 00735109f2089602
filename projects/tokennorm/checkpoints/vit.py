"""State dicts of ViT: DeiT's and the DTN authors' classifiers, timm's, MAE's encoder and mmpretrain's."""

import math
import re

import torch
from torch import Tensor

from tokennorm.checkpoints.layouts import Converted, Layout, Names, StateDict, rename

VIT_LAYOUTS = (
    Layout('the DTN authors', ('pos_embed', 'blocks.0.norm1.var_norm_weight')),
    Layout('mmpretrain', ('pos_embed', 'layers.0.ln1.weight')),
    Layout('DeiT, timm or TokenNorm', ('pos_embed', 'blocks.0.attn.qkv.weight')),
)
_MMPRETRAIN: Names = {  # none of TokenNorm's names begins like one of these
    r'^patch_embed\.projection\.': 'patch_embed.proj.',
    r'^layers\.(\d+)\.ln([12])\.': r'blocks.\1.norm\2.',
    r'^layers\.(\d+)\.attn\.': r'blocks.\1.attn.',
    r'^layers\.(\d+)\.ffn\.layers\.0\.0\.': r'blocks.\1.mlp.fc1.',
    r'^layers\.(\d+)\.ffn\.layers\.1\.': r'blocks.\1.mlp.fc2.',
    r'^ln1\.': 'norm.',
}
_OF_CLASSIFIERS = r'cls_token|dist_token|norm\.|fc_norm\.'
_HEADS = r'(head|head_dist|pre_logits)\.'


def from_published_vit(
    state_dict: StateDict, out_type: str = 'featmap', l_dtn: int = 0, pos_shape: tuple[int, int] | None = None
) -> Converted:
    """Renames the parameters of other ViTs to those of `tokennorm.backbones.ViT`, which are timm's names.

    The DTN authors' queries, keys and values have no bias: an equivalent bias of 0 is added. `from_published_dtn`
    converts their norms.

    Args:
        state_dict: The published state dict, or TokenNorm's.
        out_type: The backbone's. 'featmap' drops the class token, the distillation token, their rows of the position
            embedding and the last norm.
        l_dtn: The backbone's. If the class token joins late and the position embedding has a row for it, that row is
            added to the token. If it joins at once and there is no such row, a row of zeros is added.
        pos_shape: Height and width of the backbone's grid of positions, for a position embedding whose grid is not
            square; None accepts square grids only. The embedding is not resized.

    Raises:
        ValueError: for a position embedding whose grid is neither square nor `pos_shape`.
    """
    converted = rename(state_dict, _MMPRETRAIN, _HEADS)
    num_tokens = len({'cls_token', 'dist_token'} & converted.keys())
    for key in [key for key in converted if out_type == 'featmap' and re.match(_OF_CLASSIFIERS, key)]:
        converted.leave_out(key)
    for key, value in list(converted.items()):
        if key.endswith('attn.qkv.weight'):
            converted.add(key.removesuffix('weight') + 'bias', value.new_zeros(len(value)))
    if 'pos_embed' not in converted:
        return converted
    rows, grid = _split(state_dict['pos_embed'], num_tokens, pos_shape)
    if out_type == 'featmap':
        rows = rows[:, :0]
    elif l_dtn > 0 and rows.shape[1] == 1:
        converted['cls_token'] = state_dict['cls_token'] + rows
        rows = rows[:, :0]
    elif l_dtn == 0 and rows.shape[1] == 0:
        rows = rows.new_zeros(1, 1, rows.shape[2])
    converted['pos_embed'] = torch.cat([rows, grid.flatten(1, 2)], dim=1)
    return converted


def _split(positions: Tensor, num_tokens: int, pos_shape: tuple[int, int] | None) -> tuple[Tensor, Tensor]:
    """Splits (1, rows, C) into the rows of up to `num_tokens` tokens, which come first, and the grid, (1, h, w, C)."""
    count = positions.shape[1]
    for shape in (pos_shape, None):
        for prefix in range(num_tokens + 1):
            side = math.isqrt(max(count - prefix, 0))
            height, width = shape or (side, side)
            if height * width == count - prefix > 0:
                return positions[:, :prefix], positions[:, prefix:].unflatten(1, (height, width))
    raise ValueError(f'pos_embed has {count} rows: not a square grid')
