"""The state dict of the PVT authors' classifiers and detection backbones."""

import math
import re

from torch import Tensor

_CLASSIFIER_ONLY = re.compile(r'(cls_token|norm\.|head\.)')
_STAGE = re.compile(r'(patch_embed|pos_embed|block)(\d)(.*)')


def from_published_pvt(state_dict: dict[str, Tensor], out_type: str = 'featmap') -> dict[str, Tensor]:
    """Renames the parameters of the PVT authors' models to those of `tokennorm.backbones.PVT`.

    Args:
        state_dict: The published state dict. It is not changed.
        out_type: The backbone's. For 'featmap' the class token, its row of the last position embedding and the last
            norm are left out. The linear head is left out always.

    Returns:
        A new dict for `load_state_dict(strict=True)`.

    Raises:
        ValueError: for a key that is not of this layout.
    """
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
