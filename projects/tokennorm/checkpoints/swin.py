"""State dicts of Swin: its authors' classifiers and detection backbones, timm's, mmdet's and mmpretrain's."""

import re

from einops import rearrange
from torch import Tensor

from tokennorm.checkpoints.layouts import Converted, Layout, StateDict

_BIAS_TABLE = 'relative_position_bias_table'
SWIN_LAYOUTS = (
    Layout('its authors', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}', 'layers.0.downsample.norm.weight')),
    Layout('timm', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}',)),
    Layout('mmdet or mmpretrain', (f'stages.0.blocks.0.attn.w_msa.{_BIAS_TABLE}',)),
    Layout('TokenNorm', (f'stages.0.blocks.0.attn.{_BIAS_TABLE}',)),
)
_STEMS = {'patch_embed.proj.weight', 'patch_embed.projection.weight'}
_RECOMPUTED = re.compile(r'.*\.(relative_position_index|attn_mask)')
_PART = re.compile(r'(?:layers|stages)\.(\d)\.(blocks|downsample)\.(.*)')
_OUTPUT_NORM = re.compile(r'norm(\d?)\.(.*)')
_OWN_OUTPUT_NORM = re.compile(r'stages\.(\d)\.norm\.(?:weight|bias)')
_OWN_PROJ = re.compile(r'stages\.(\d)\.blocks\.0\.attn\.proj\.weight')
_MMDET_NAMES = {'attn.w_msa.': 'attn.', 'ffn.layers.0.0.': 'mlp.fc1.', 'ffn.layers.1.': 'mlp.fc2.'}


def from_published_swin(state_dict: StateDict, out_type: str = 'featmap') -> Converted:
    """Renames the parameters of the authors', timm's, mmdet's or mmpretrain's Swin to those of TokenNorm's `Swin`.

    The patch merging of mmdet and mmpretrain concatenates the channels of the four tokens in another order; its
    parameters are reordered. Relative position indices, shift masks and a classifier's linear head are dropped.

    Args:
        state_dict: One of these state dicts, recognized by the name of its first patch embedding, or one of
            TokenNorm's, of which only the output norms change. It is not changed.
        out_type: The backbone's. 'featmap' drops the classifier's last norm, and adds output norms with weight 1 and
            bias 0 where they are missing, as published detectors initialize them. 'avg_featmap' keeps only the
            classifier's norm, or a detection backbone's last.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key that its layout does not have.
    """
    published = _STEMS & state_dict.keys()
    converted = _rename(state_dict, out_type) if published else _select_output_norms(state_dict, out_type)
    if out_type == 'featmap':
        for match, value in [(_OWN_PROJ.fullmatch(key), value) for key, value in converted.items()]:
            for kind, initial in (('weight', value.new_ones), ('bias', value.new_zeros)) if match else ():
                if (key := f'stages.{match.group(1)}.norm.{kind}') not in converted:
                    converted[key] = initial(len(value))
                    converted.added.append(key)
    return converted


def _rename(state_dict: StateDict, out_type: str) -> Converted:
    of_mmdet = 'patch_embed.projection.weight' in state_dict
    merges_at_the_end = of_mmdet or any(key.startswith('layers.0.downsample.') for key in state_dict)  # timm: no
    last = max((int(match.group(1)) for key in state_dict if (match := _PART.fullmatch(key))), default=0)
    converted = Converted({})
    for key, value in state_dict.items():
        if key.startswith('head.') or _RECOMPUTED.fullmatch(key):
            converted.unused.append(key)
            continue
        if key.startswith('patch_embed.'):
            converted['stages.0.' + key.replace('projection.', 'proj.')] = value
        elif match := _OUTPUT_NORM.fullmatch(key):
            stage, rest = match.groups()
            if out_type == 'featmap' and stage:
                converted[f'stages.{stage}.norm.{rest}'] = value
            elif out_type != 'featmap' and stage in ('', str(last)):
                converted[f'stages.{last}.norm.{rest}'] = value
            else:
                converted.unused.append(key)
        elif match := _PART.fullmatch(key):
            stage, part, rest = match.groups()
            if part == 'downsample':
                value = _reorder_merging(state_dict[key]) if of_mmdet else value
                converted[f'stages.{int(stage) + merges_at_the_end}.patch_embed.{rest}'] = value
            else:
                for theirs, ours in _MMDET_NAMES.items():
                    rest = rest.replace(theirs, ours)
                converted[f'stages.{stage}.blocks.{rest}'] = value
        else:
            raise ValueError(f"{key} is not a parameter of the authors', timm's, mmdet's or mmpretrain's Swin")
    return converted


def _select_output_norms(state_dict: StateDict, out_type: str) -> Converted:
    """The output norms of a TokenNorm state dict, of a classifier or a detection backbone, that `out_type` has."""
    norms = {key: int(match.group(1)) for key in state_dict if (match := _OWN_OUTPUT_NORM.fullmatch(key))}
    of_classifier = norms and 0 not in norms.values()
    if out_type == 'featmap':
        unused = [*norms] if of_classifier else []
    else:
        unused = [key for key, stage in norms.items() if stage != max(norms.values())]
    return Converted({key: value for key, value in state_dict.items() if key not in unused}, unused)


def _reorder_merging(value: Tensor) -> Tensor:
    """(..., (C, ph, pw)), the order of torch's unfold, to the published (..., (pw, ph, C))."""
    return rearrange(value, '... (c ph pw) -> ... (pw ph c)', ph=2, pw=2)
