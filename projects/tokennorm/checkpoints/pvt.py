"""State dicts of PVT and PVTv2: their authors' models, timm's and mmdet's."""

import math
import re

from torch import Tensor

from tokennorm.checkpoints.layouts import Converted, Layout, StateDict

PVT_LAYOUTS = (
    Layout('its authors', ('pos_embed1',)),
    Layout('mmdet', ('layers.0.1.0.pos_embed',), eps=1e-6),
    Layout('TokenNorm', ('stages.0.pos_embed',)),
)
PVT_V2_LAYOUTS = (
    Layout('its authors', ('block1.0.mlp.dwconv.dwconv.weight',)),
    Layout('timm', ('patch_embed.proj.weight', 'stages.0.blocks.0.mlp.dwconv.weight')),
    Layout('mmdet', ('layers.0.1.0.ffn.layers.1.weight',), eps=1e-6),
    Layout('TokenNorm', ('stages.0.blocks.0.mlp.dwconv.weight',)),
)

_CLASSIFIER_ONLY = re.compile(r'(cls_token|norm\.|head\.)')
_STAGE = re.compile(r'(patch_embed|pos_embed|block)(\d)(.*)')
_MMDET = re.compile(r'layers\.(\d)\.([012])\.(.*)')
_MMDET_NAMES = {
    'projection.': 'proj.',
    'attn.attn.out_proj.': 'attn.proj.',
    'ffn.layers.0.': 'mlp.fc1.',
    'ffn.layers.1.': 'mlp.dwconv.',
    'ffn.layers.3.': 'mlp.fc2.',  # PVT, whose MLP has no convolution
    'ffn.layers.4.': 'mlp.fc2.',
}
_V2_STEMS = {'patch_embed1.proj.weight', 'patch_embed.proj.weight', 'layers.0.0.projection.weight'}
_V2_PUBLISHED = re.compile(r'(patch_embed|block|norm)([1-4])\.(.*)')
_V2_TIMM = re.compile(r'(patch_embed\.|stages\.\d\.(?:downsample|blocks|norm)\.)(.*)')


def from_published_pvt(state_dict: StateDict, out_type: str = 'featmap') -> Converted:
    """Renames the parameters of the authors' or mmdet's PVT to those of `tokennorm.backbones.PVT`.

    Args:
        state_dict: The authors' state dict, mmdet's, which has no class token, or TokenNorm's. It is not changed.
        out_type: The backbone's. 'featmap' drops the class token, its row of the last position embedding and the last
            norm. The linear head is always dropped.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key that its layout does not have.
    """
    if 'layers.0.1.0.pos_embed' in state_dict:
        return _from_mmdet_pvt(state_dict)
    if 'stages.0.pos_embed' in state_dict:
        return _without_class_token(state_dict) if out_type == 'featmap' else Converted(state_dict)
    stages = {key: match for key in state_dict if (match := _STAGE.fullmatch(key))}
    last = max(int(match.group(2)) for match in stages.values()) - 1 if stages else 0
    converted = Converted({})
    for key, value in state_dict.items():
        if key in stages:
            kind, number, rest = stages[key].groups()
            name = f'stages.{int(number) - 1}.{"blocks" if kind == "block" else kind}{rest}'
            has_token_row = out_type == 'featmap' and name == f'stages.{last}.pos_embed' and _is_square_and_one(value)
            converted[name] = state_dict[key][:, 1:] if has_token_row else value
        elif not _CLASSIFIER_ONLY.match(key):
            raise ValueError(f'{key} is not a parameter of a published PVT')
        elif out_type == 'cls_token' and not key.startswith('head.'):
            converted[f'stages.{last}.cls_token' if key == 'cls_token' else key] = value
        else:
            converted.unused.append(key)
    return converted


def from_published_pvt_v2(state_dict: StateDict) -> Converted:
    """Renames the parameters of the authors', timm's or mmdet's PVTv2 to those of `tokennorm.backbones.PVTv2`.

    Args:
        state_dict: One of these state dicts, recognized by the name of its first patch embedding. Any other passes
            unchanged. It is not changed.

    Returns:
        A new dict for `load_state_dict(strict=True)`, without a classifier's linear head.

    Raises:
        ValueError: for a key that its layout does not have.
    """
    if not _V2_STEMS & state_dict.keys():
        return Converted(state_dict)
    converted = Converted({}, unused=[key for key in state_dict if key.startswith('head.')])
    for key, value in state_dict.items():
        if key in converted.unused:
            continue
        if match := _V2_PUBLISHED.fullmatch(key):
            kind, number, rest = match.groups()
            kind = 'blocks' if kind == 'block' else kind
            converted[f'stages.{int(number) - 1}.{kind}.{rest.replace("dwconv.dwconv", "dwconv")}'] = value
        elif match := _V2_TIMM.fullmatch(key):
            part, rest = match.groups()
            part = 'stages.0.patch_embed.' if part == 'patch_embed.' else part.replace('downsample', 'patch_embed')
            converted[part + rest] = value
        elif match := _MMDET.fullmatch(key):
            stage, part, rest = match.groups()
            prefix = f'stages.{stage}.' + ('patch_embed.', 'blocks.', 'norm.')[int(part)]
            converted |= _from_mmdet_part(state_dict, key, prefix, rest)
        else:
            raise ValueError(f"{key} is not a parameter of the authors', timm's or mmdet's PVTv2")
    return converted


def _without_class_token(state_dict: StateDict) -> Converted:
    """A TokenNorm backbone with `out_type='cls_token'` to one with feature maps; any other is copied."""
    tokens = [key for key in state_dict if key.endswith('cls_token')]
    unused = [*tokens, *(key for key in state_dict if tokens and key.startswith('norm.'))]
    converted = Converted({key: value for key, value in state_dict.items() if key not in unused}, unused)
    for key in (token.removesuffix('cls_token') + 'pos_embed' for token in tokens):
        converted[key] = state_dict[key][:, 1:]
    return converted


def _is_square_and_one(positions: Tensor) -> bool:
    """Whether the rows of (1, rows, C) are those of a square grid and one more, and not of a square grid only."""
    rows = positions.shape[1]
    return math.isqrt(rows) ** 2 != rows and math.isqrt(rows - 1) ** 2 == rows - 1


def _from_mmdet_pvt(state_dict: StateDict) -> Converted:
    """mmdet's stages consist of the patch embedding (0) and a list (1) of the position embedding and the blocks."""
    converted = Converted({})
    for key, value in state_dict.items():
        match = _MMDET.fullmatch(key)
        if match is None or match.group(2) == '2':
            raise ValueError(f"{key} is not a parameter of mmdet's PVT")
        stage, part, rest = match.groups()
        if part == '1' and rest == '0.pos_embed':
            converted[f'stages.{stage}.pos_embed'] = value
        elif part == '1':
            block, _, rest = rest.partition('.')
            converted |= _from_mmdet_part(state_dict, key, f'stages.{stage}.blocks.{int(block) - 1}.', rest)
        else:
            converted |= _from_mmdet_part(state_dict, key, f'stages.{stage}.patch_embed.', rest)
    return converted


def _from_mmdet_part(state_dict: StateDict, key: str, prefix: str, name: str) -> StateDict:
    """One parameter of a block or patch embedding of mmdet's PVT or PVTv2, under TokenNorm's names.

    mmdet keeps queries, keys and values in one matrix, and the linear layers of the MLP as 1 x 1 convolutions.
    """
    value = state_dict[key]
    if 'attn.attn.in_proj_' in name:
        query, key_value = value.tensor_split([len(value) // 3])
        before, kind = name.split('attn.attn.in_proj_')
        return {f'{prefix}{before}attn.q.{kind}': query, f'{prefix}{before}attn.kv.{kind}': key_value}
    for theirs, ours in _MMDET_NAMES.items():
        name = name.replace(theirs, ours)
    return {prefix + name: value.flatten(1) if name.endswith(('mlp.fc1.weight', 'mlp.fc2.weight')) else value}
