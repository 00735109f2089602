"""The state dicts of ViT: DeiT's and the DTN authors' classifiers, timm's, MAE's encoder and mmpretrain's."""

import math
import re

import torch
from torch import Tensor

_HEADS = re.compile(r'(head|head_dist|pre_logits)\.')
_CLASSIFIER_ONLY = re.compile(r'(cls_token|dist_token|norm\.|fc_norm\.)')
_KNOWN = re.compile(r'(pos_embed|cls_token|dist_token|norm\.|fc_norm\.|patch_embed\.|blocks\.\d+\.)')
_MMPRETRAIN_NAMES = {  # no name of ours begins like one of them
    r'patch_embed\.projection\.': 'patch_embed.proj.',
    r'layers\.(\d+)\.ln([12])\.': r'blocks.\1.norm\2.',
    r'layers\.(\d+)\.attn\.': r'blocks.\1.attn.',
    r'layers\.(\d+)\.ffn\.layers\.0\.0\.': r'blocks.\1.mlp.fc1.',
    r'layers\.(\d+)\.ffn\.layers\.1\.': r'blocks.\1.mlp.fc2.',
    r'ln1\.': 'norm.',
}


def from_published_vit(
    state_dict: dict[str, Tensor],
    out_type: str = 'featmap',
    l_dtn: int = 0,
    pos_shape: tuple[int, int] | None = None,
) -> dict[str, Tensor]:
    """Renames the parameters of other ViTs to those of `tokennorm.backbones.ViT`, which are timm's names.

    The DTN authors' queries, keys and values have no bias, ours the one of 0 that is the same. Their norms are left to
    `from_published_dtn`.

    Args:
        state_dict: The published state dict, or one of ours. It is not changed.
        out_type: The backbone's. For 'featmap' the class token, that of distillation, their rows of the position
            embedding and the last norm are left out. Linear heads are left out always.
        l_dtn: The backbone's. Where the class token joins late and the position embedding has a row for it, that row is
            added to the token; where it joins at once and there is none, it gets one of 0.
        pos_shape: Height and width of the backbone's grid of positions, which that of the dict is where it is not
            square; None: it is. Its size stays.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key that is not of these layouts, and for positions of which it is not clear of what grid: of
            none that is square or `pos_shape`, or of more than one.
    """
    converted = {}
    for key, value in state_dict.items():
        name = _rename(key)
        if _HEADS.match(name):
            continue
        if not _KNOWN.match(name):
            raise ValueError(f"{key} is no parameter of a published ViT, of timm's or of mmpretrain's")
        if out_type == 'cls_token' or not _CLASSIFIER_ONLY.match(name):
            converted[name] = value
        if name.endswith('attn.qkv.weight') and key.replace('weight', 'bias') not in state_dict:
            converted[name.replace('weight', 'bias')] = value.new_zeros(len(value))
    if 'pos_embed' in converted:
        tokens = {'cls_token', 'dist_token'} & state_dict.keys()
        rows, grid = _split(converted['pos_embed'], len(tokens), pos_shape)
        if out_type == 'featmap':
            rows = rows[:, :0]
        elif l_dtn > 0 and rows.shape[1] == 1:
            converted['cls_token'] = converted['cls_token'] + rows
            rows = rows[:, :0]
        elif l_dtn == 0 and rows.shape[1] == 0:
            rows = rows.new_zeros(1, 1, rows.shape[2])
        positions = torch.cat([rows, grid.flatten(1, 2)], dim=1)
        if not torch.equal(positions, converted['pos_embed']):
            converted['pos_embed'] = positions
    return converted


def _rename(key: str) -> str:
    for theirs, ours in _MMPRETRAIN_NAMES.items():
        if re.match(theirs, key):
            return re.sub(theirs, ours, key)
    return key


def _split(positions: Tensor, num_tokens: int, pos_shape: tuple[int, int] | None) -> tuple[Tensor, Tensor]:
    """The rows (1, 0 to `num_tokens`, C) of tokens outside the grid, which come first, and the grid's, (1, h, w, C)."""
    count = positions.shape[1]
    found = set()
    for prefix in range(num_tokens + 1):
        side = math.isqrt(max(count - prefix, 0))
        for height, width in ((side, side), pos_shape or (0, 0)):
            if height * width == count - prefix > 0:
                found.add((prefix, height, width))
    if len(found) != 1:
        grids = ' or '.join(f'{height} x {width} with {prefix} more' for prefix, height, width in sorted(found))
        raise ValueError(f'pos_embed of {count} rows: {grids or "not of a square grid"}')
    prefix, height, width = found.pop()
    return positions[:, :prefix], positions[:, prefix:].unflatten(1, (height, width))
