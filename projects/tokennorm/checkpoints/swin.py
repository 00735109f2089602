"""State dicts of Swin: its authors' classifiers and detection backbones, timm's, mmdet's and mmpretrain's."""

import re

from einops import rearrange
from torch import Tensor

StateDict = dict[str, Tensor]

_STEMS = {'patch_embed.proj.weight', 'patch_embed.projection.weight'}
_RECOMPUTED = re.compile(r'.*\.(relative_position_index|attn_mask)')
_PART = re.compile(r'(?:layers|stages)\.(\d)\.(blocks|downsample)\.(.*)')
_OUTPUT_NORM = re.compile(r'norm(\d?)\.(.*)')
_OWN_OUTPUT_NORM = re.compile(r'stages\.(\d)\.norm\.(?:weight|bias)')
_OWN_PROJ = re.compile(r'stages\.(\d)\.blocks\.0\.attn\.proj\.weight')
_MMDET_NAMES = {'attn.w_msa.': 'attn.', 'ffn.layers.0.0.': 'mlp.fc1.', 'ffn.layers.1.': 'mlp.fc2.'}


def from_published_swin(state_dict: StateDict, out_type: str = 'featmap') -> StateDict:
    """Renames the parameters of the authors', timm's, mmdet's or mmpretrain's Swin to those of TokenNorm's `Swin`.

    The patch merging of mmdet and mmpretrain concatenates the channels of the four tokens in another order; its
    parameters are reordered. Relative position indices, shift masks and a classifier's linear head are dropped.

    Args:
        state_dict: One of these state dicts, recognised by the name of its first patch embedding, or one of
            TokenNorm's, of which only the output norms change. It is not changed.
        out_type: The backbone's. 'featmap' drops the classifier's last norm, and adds missing output norms as
            `fill_output_norms` does. 'avg_featmap' keeps only the classifier's norm, or a detection backbone's last.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key that its layout does not have.
    """
    renamed = rename_swin(state_dict, out_type)
    return fill_output_norms(renamed) if out_type == 'featmap' else renamed


def rename_swin(state_dict: StateDict, out_type: str = 'featmap') -> StateDict:
    """`from_published_swin` without adding the output norms that a classifier lacks."""
    if not _STEMS & state_dict.keys():
        return _select_output_norms(state_dict, out_type)
    of_mmdet = 'patch_embed.projection.weight' in state_dict
    merges_at_the_end = of_mmdet or any(key.startswith('layers.0.downsample.') for key in state_dict)  # timm: no
    last = max((int(match.group(1)) for key in state_dict if (match := _PART.fullmatch(key))), default=0)
    converted = {}
    for key, value in state_dict.items():
        if key.startswith('head.') or _RECOMPUTED.fullmatch(key):
            continue
        if key.startswith('patch_embed.'):
            converted['stages.0.' + key.replace('projection.', 'proj.')] = value
        elif match := _OUTPUT_NORM.fullmatch(key):
            stage, rest = match.groups()
            if out_type == 'featmap' and stage:
                converted[f'stages.{stage}.norm.{rest}'] = value
            elif out_type != 'featmap' and stage in ('', str(last)):
                converted[f'stages.{last}.norm.{rest}'] = value
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


def fill_output_norms(state_dict: StateDict) -> StateDict:
    """Adds output norms, weight 1 and bias 0, to the stages that have none, as the published detectors initialize."""
    filled = dict(state_dict)
    for key, value in state_dict.items():
        if match := _OWN_PROJ.fullmatch(key):
            filled.setdefault(f'stages.{match.group(1)}.norm.weight', value.new_ones(len(value)))
            filled.setdefault(f'stages.{match.group(1)}.norm.bias', value.new_zeros(len(value)))
    return filled


def _select_output_norms(state_dict: StateDict, out_type: str) -> StateDict:
    """The output norms of a TokenNorm state dict, of a classifier or a detection backbone, that `out_type` has."""
    norms = {key: int(match.group(1)) for key in state_dict if (match := _OWN_OUTPUT_NORM.fullmatch(key))}
    last = max(norms.values(), default=0)
    if out_type != 'featmap':
        return {key: value for key, value in state_dict.items() if norms.get(key, last) == last}
    of_classifier = norms and 0 not in norms.values()
    return {key: value for key, value in state_dict.items() if not (of_classifier and key in norms)}


def _reorder_merging(value: Tensor) -> Tensor:
    """(..., (C, ph, pw)), the order of torch's unfold, to the published (..., (pw, ph, C))."""
    return rearrange(value, '... (c ph pw) -> ... (pw ph c)', ph=2, pw=2)
