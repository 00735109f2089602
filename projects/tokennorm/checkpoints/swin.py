"""State dicts of Swin: its authors' classifiers and detection backbones, timm's, mmdet's and mmpretrain's."""

import re

from einops import rearrange

from tokennorm.checkpoints.layouts import Converted, Layout, Names, StateDict, rename

_BIAS_TABLE = 'relative_position_bias_table'
SWIN_LAYOUTS = (
    Layout('its authors', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}', 'layers.0.downsample.norm.weight')),
    Layout('timm', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}',)),
    Layout('mmdet or mmpretrain', (f'stages.0.blocks.0.attn.w_msa.{_BIAS_TABLE}',)),
    Layout('TokenNorm', (f'stages.0.blocks.0.attn.{_BIAS_TABLE}',)),
)
_STEMS = {'patch_embed.proj.weight', 'patch_embed.projection.weight'}
_NAMES: Names = {
    r'^patch_embed\.': 'stages.0.patch_embed.',
    r'^layers\.': 'stages.',
    r'^norm(\d)\.': r'stages.\1.norm.',
    r'\.projection\.': '.proj.',
    r'attn\.w_msa\.': 'attn.',
    r'ffn\.layers\.0\.0\.': 'mlp.fc1.',
    r'ffn\.layers\.1\.': 'mlp.fc2.',
}
_UNUSED = r'head\.|norm\.|.*\.(relative_position_index|attn_mask)$'
_NORM = re.compile(r'stages\.(\d)\.norm\.(?:weight|bias)')
_PROJ = re.compile(r'stages\.(\d)\.blocks\.0\.attn\.proj\.weight')


def from_published_swin(state_dict: StateDict, out_type: str = 'featmap') -> Converted:
    """Renames the parameters of the authors', timm's, mmdet's or mmpretrain's Swin to those of TokenNorm's `Swin`.

    The patch merging of mmdet and mmpretrain concatenates the channels of the four tokens in another order; its
    parameters are reordered. Relative position indices and shift masks are dropped.

    The backbone's `out_type` 'featmap' drops the classifier's last norm, and adds output norms with weight 1 and bias 0
    where they are missing, as published detectors initialize them. 'avg_featmap' keeps only the classifier's norm, or a
    detection backbone's last.
    """
    published = bool(_STEMS & state_dict.keys())
    converted = _rename(state_dict, out_type) if published else Converted(state_dict)
    norms = {key: int(match[1]) for key in converted if (match := _NORM.fullmatch(key))}
    if out_type == 'featmap':
        of_classifier = not published and norms and 0 not in norms.values()
        for key in norms if of_classifier else ():
            converted.leave_out(key)
        for stage, value in [(match[1], value) for key, value in converted.items() if (match := _PROJ.fullmatch(key))]:
            converted.add(f'stages.{stage}.norm.weight', value.new_ones(len(value)))
            converted.add(f'stages.{stage}.norm.bias', value.new_zeros(len(value)))
        return converted
    for key, stage in norms.items():
        if stage != max(norms.values()):
            converted.leave_out(key)
    return converted


def _rename(state_dict: StateDict, out_type: str) -> Converted:
    of_mmdet = 'patch_embed.projection.weight' in state_dict
    merges_at_the_end = of_mmdet or any(key.startswith('layers.0.downsample.') for key in state_dict)  # timm: no
    names: Names = {
        r'^(?:layers|stages)\.(\d)\.downsample\.': (
            lambda found: f'stages.{int(found[1]) + merges_at_the_end}.patch_embed.'
        ),
        **_NAMES,
    }
    if out_type != 'featmap':
        last = max(int(found[1]) for key in state_dict if (found := re.match(r'(?:layers|stages)\.(\d)\.', key)))
        names[r'^norm\.'] = f'stages.{last}.norm.'
    converted = rename(state_dict, names, _UNUSED)
    for key, value in converted.items():
        if of_mmdet and 'patch_embed' in key and not key.startswith('stages.0'):
            # From (..., (C, ph, pw)), the order of torch's unfold, to the published (..., (pw, ph, C)).
            converted[key] = rearrange(value, '... (c ph pw) -> ... (pw ph c)', ph=2, pw=2)
    return converted
