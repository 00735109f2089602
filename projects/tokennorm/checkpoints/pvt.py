"""State dicts of PVT and PVTv2: their authors' models, timm's and mmdet's."""

import math

from tokennorm.checkpoints.layouts import Converted, Layout, Names, StateDict, rename

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

_AUTHORS: Names = {
    r'^(patch_embed|pos_embed|block|norm)(\d)': (
        lambda found: f'stages.{int(found[2]) - 1}.{"blocks" if found[1] == "block" else found[1]}'
    ),
    r'dwconv\.dwconv': 'dwconv',
}
_TIMM: Names = {r'^patch_embed\.': 'stages.0.patch_embed.', r'\.downsample\.': '.patch_embed.'}
_MMDET: Names = {  # a stage is the patch embedding (0), a list of blocks (1), and in PVTv2 a norm (2)
    r'^layers\.(\d)\.0\.': r'stages.\1.patch_embed.',
    r'^layers\.(\d)\.1\.': r'stages.\1.blocks.',
    r'^layers\.(\d)\.2\.': r'stages.\1.norm.',
    r'\.projection\.': '.proj.',
    r'attn\.attn\.out_proj\.': 'attn.proj.',
    r'ffn\.layers\.0\.': 'mlp.fc1.',
    r'ffn\.layers\.1\.': 'mlp.dwconv.',
    r'ffn\.layers\.[34]\.': 'mlp.fc2.',  # 3 in PVT, whose MLP has no convolution
}
_MMDET_PVT: Names = {  # the position embedding comes before the blocks
    r'^layers\.(\d)\.1\.0\.pos_embed': r'stages.\1.pos_embed',
    r'^layers\.(\d)\.1\.(\d+)\.': lambda found: f'stages.{found[1]}.blocks.{int(found[2]) - 1}.',
    **_MMDET,
}


def from_published_pvt(state_dict: StateDict, out_type: str = 'featmap') -> Converted:
    """Renames the parameters of the authors' or mmdet's PVT to those of `tokennorm.backbones.PVT`.

    mmdet's has no class token. The backbone's `out_type` 'featmap' drops the class token, its row of the last position
    embedding and the last norm.
    """
    if 'layers.0.1.0.pos_embed' in state_dict:
        return _from_mmdet(rename(state_dict, _MMDET_PVT))
    is_tokennorms = 'stages.0.pos_embed' in state_dict
    converted = rename(state_dict, _AUTHORS, r'head\.')
    last = max((key for key in converted if key.endswith('pos_embed')), default='')
    if 'cls_token' in converted:
        key = last.replace('pos_embed', 'cls_token')
        converted[key], converted.sources[key] = converted.pop('cls_token'), 'cls_token'
    if out_type == 'featmap':
        tokens = [key for key in converted if key.endswith('cls_token')]
        rows = converted[last].shape[1] if last else 0
        is_square, is_square_and_one = (math.isqrt(max(n, 0)) ** 2 == n for n in (rows, rows - 1))
        if tokens if is_tokennorms else is_square_and_one and not is_square:
            converted[last] = converted[last][:, 1:]
        for key in [*tokens, *(key for key in converted if key.startswith('norm.'))]:
            converted.leave_out(key)
    return converted


def from_published_pvt_v2(state_dict: StateDict) -> Converted:
    """Renames the parameters of the authors', timm's or mmdet's PVTv2 to those of `tokennorm.backbones.PVTv2`."""
    return _from_mmdet(rename(state_dict, _AUTHORS | _TIMM | _MMDET, r'head\.'))


def _from_mmdet(converted: Converted) -> Converted:
    """Splits mmdet's matrix of queries, keys and values, and makes its 1 x 1 convolutions linear layers, in place."""
    for key, value in list(converted.items()):
        if 'attn.attn.in_proj_' in key:
            del converted[key]
            before, weight_or_bias = key.split('attn.attn.in_proj_')
            query, key_value = value.tensor_split([len(value) // 3])
            converted[f'{before}attn.q.{weight_or_bias}'] = query
            converted[f'{before}attn.kv.{weight_or_bias}'] = key_value
        elif key.endswith(('mlp.fc1.weight', 'mlp.fc2.weight')):
            converted[key] = value.flatten(1)
    return converted
