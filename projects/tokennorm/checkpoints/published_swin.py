"""The state dicts of Swin: its authors' classifiers and detection backbones, timm's, mmdet's and mmpretrain's."""

import re

from einops import rearrange
from torch import Tensor

_STEMS = {'patch_embed.proj.weight', 'patch_embed.projection.weight'}
_RECOMPUTED = re.compile(r'.*\.(relative_position_index|attn_mask)')
_PLACE = re.compile(r'(?:layers|stages)\.(\d)\.(blocks|downsample)\.(.*)')
_OUTPUT_NORM = re.compile(r'norm(\d?)\.(.*)')
_OWN_OUTPUT_NORM = re.compile(r'stages\.(\d)\.norm\.(?:weight|bias)')
_OWN_PROJ = re.compile(r'stages\.(\d)\.blocks\.0\.attn\.proj\.weight')
_MMDET_NAMES = {'attn.w_msa.': 'attn.', 'ffn.layers.0.0.': 'mlp.fc1.', 'ffn.layers.1.': 'mlp.fc2.'}


def from_published_swin(state_dict: dict[str, Tensor], out_type: str = 'featmap') -> dict[str, Tensor]:
    """Renames the parameters of other Swins to those of `tokennorm.backbones.Swin`.

    mmdet's and mmpretrain's patch merging takes the four tokens' channels in another order, in which its parameters are
    put right. Relative position indices and shift masks, which are no parameters, are left out, and so is a
    classifier's linear head.

    Args:
        state_dict: The authors' state dict, timm's, mmdet's or mmpretrain's, known by the name of its first patch
            embedding, or one of ours, of which the output norms alone are changed. It is not changed.
        out_type: The backbone's. For 'featmap', output norms that the dict does not have, as a classifier has none, are
            added with weight 1 and bias 0, which is how the published detectors start; the classifier's last norm is
            left out. For 'avg_featmap' it is the one that stays, or else a detection backbone's last.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key of these layouts' dicts that is not of them.
    """
    if not _STEMS & state_dict.keys():
        return _with_output_norms_for(out_type, state_dict)
    of_mmdet = 'patch_embed.projection.weight' in state_dict
    merges_at_the_end = of_mmdet or any(key.startswith('layers.0.downsample.') for key in state_dict)  # timm: no
    dims = {}  # channels of each stage
    for key, value in state_dict.items():
        if (match := _PLACE.fullmatch(key)) and match.group(3) == '0.norm1.weight':
            dims[int(match.group(1))] = value
    last = max(dims, default=0)
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
        elif match := _PLACE.fullmatch(key):
            stage, place, rest = match.groups()
            if place == 'downsample':
                value = _reorder_merging(value) if of_mmdet else value
                converted[f'stages.{int(stage) + merges_at_the_end}.patch_embed.{rest}'] = value
            else:
                for theirs, ours in _MMDET_NAMES.items():
                    rest = rest.replace(theirs, ours)
                converted[f'stages.{stage}.blocks.{rest}'] = value
        else:
            raise ValueError(f"{key} is no parameter of a published Swin, of timm's, mmdet's or mmpretrain's")
    if out_type == 'featmap':
        for stage, weight in dims.items():
            converted.setdefault(f'stages.{stage}.norm.weight', weight.new_ones(len(weight)))
            converted.setdefault(f'stages.{stage}.norm.bias', weight.new_zeros(len(weight)))
    return converted


def _with_output_norms_for(out_type: str, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """One of our state dicts, of a classifier or a detection backbone, for the `out_type`."""
    norms = {key: int(match.group(1)) for key in state_dict if (match := _OWN_OUTPUT_NORM.fullmatch(key))}
    last = max(norms.values(), default=0)
    if out_type != 'featmap':
        return {key: value for key, value in state_dict.items() if norms.get(key, last) == last}
    if not norms or 0 in norms.values():
        return dict(state_dict)
    converted = {key: value for key, value in state_dict.items() if key not in norms}
    for key, value in state_dict.items():
        if match := _OWN_PROJ.fullmatch(key):
            converted[f'stages.{match.group(1)}.norm.weight'] = value.new_ones(len(value))
            converted[f'stages.{match.group(1)}.norm.bias'] = value.new_zeros(len(value))
    return converted


def _reorder_merging(value: Tensor) -> Tensor:
    """(..., (C, ph, pw)), the order of torch's unfold, to the published (..., (pw, ph, C))."""
    return rearrange(value, '... (c ph pw) -> ... (pw ph c)', ph=2, pw=2)
