"""The state dicts of PVT: its authors' classifiers and detection backbones, and mmdet's."""

import math
import re

from torch import Tensor

from tokennorm.checkpoints.mmdet_block import from_mmdet_block

_CLASSIFIER_ONLY = re.compile(r'(cls_token|norm\.|head\.)')
_STAGE = re.compile(r'(patch_embed|pos_embed|block)(\d)(.*)')
_MMDET = re.compile(r'layers\.(\d)\.([01])\.(.*)')


def from_published_pvt(state_dict: dict[str, Tensor], out_type: str = 'featmap') -> dict[str, Tensor]:
    """Renames the parameters of other PVTs to those of `tokennorm.backbones.PVT`.

    Args:
        state_dict: The authors' state dict, or mmdet's, which has no class token. It is not changed.
        out_type: The backbone's. For 'featmap' the class token, its row of the last position embedding and the last
            norm are left out. The linear head is left out always.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key that is not of these layouts.
    """
    if 'layers.0.1.0.pos_embed' in state_dict:
        return _from_mmdet(state_dict)
    stages = {key: match for key in state_dict if (match := _STAGE.fullmatch(key))}
    last = max(int(match.group(2)) for match in stages.values()) - 1 if stages else 0
    converted = {}
    for key, value in state_dict.items():
        if key in stages:
            kind, number, rest = stages[key].groups()
            converted[f'stages.{int(number) - 1}.{"blocks" if kind == "block" else kind}{rest}'] = value
        elif not _CLASSIFIER_ONLY.match(key):
            raise ValueError(f'{key} is no parameter of a published PVT')
        elif out_type == 'cls_token' and not key.startswith('head.'):
            converted[f'stages.{last}.cls_token' if key == 'cls_token' else key] = value
    positions = f'stages.{last}.pos_embed'
    if out_type == 'featmap' and positions in converted:
        rows = converted[positions].shape[1]
        if math.isqrt(rows) ** 2 != rows and math.isqrt(rows - 1) ** 2 == rows - 1:  # a square grid, and the token's
            converted[positions] = converted[positions][:, 1:]
    return converted


def _from_mmdet(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of its stages 0 is the patch embedding and 1 a list of the position embedding and the blocks."""
    converted = {}
    for key, value in state_dict.items():
        match = _MMDET.fullmatch(key)
        if match is None:
            raise ValueError(f"{key} is no parameter of mmdet's PVT")
        stage, part, rest = match.groups()
        if part == '1' and rest == '0.pos_embed':
            converted[f'stages.{stage}.pos_embed'] = value
            continue
        place = 'patch_embed'
        if part == '1':
            block, _, rest = rest.partition('.')
            place = f'blocks.{int(block) - 1}'
        for name, own in from_mmdet_block(rest, value).items():
            converted[f'stages.{stage}.{place}.{name}'] = own
    return converted
