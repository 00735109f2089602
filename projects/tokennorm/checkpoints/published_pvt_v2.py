"""The state dicts of PVTv2: its authors' models, timm's and mmdet's."""

import re

from torch import Tensor

from tokennorm.checkpoints.mmdet_block import from_mmdet_block

_STEMS = {'patch_embed1.proj.weight', 'patch_embed.proj.weight', 'layers.0.0.projection.weight'}
_PUBLISHED = re.compile(r'(patch_embed|block|norm)([1-4])\.(.*)')
_TIMM = re.compile(r'(patch_embed\.|stages\.\d\.(?:downsample|blocks|norm)\.)(.*)')
_MMDET = re.compile(r'layers\.(\d)\.([012])\.(.*)')


def from_published_pvt_v2(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames the parameters of other PVTv2s to those of `tokennorm.backbones.PVTv2`.

    Args:
        state_dict: The authors' state dict, timm's or mmdet's, known by the name of its first patch embedding, or any
            other, which passes unchanged. It is not changed.

    Returns:
        A new dict for `load_state_dict(strict=True)`, without a classifier's linear head.

    Raises:
        ValueError: for a key of the three layouts' dicts that is not of them.
    """
    if not _STEMS & state_dict.keys():
        return dict(state_dict)
    converted = {}
    for key, value in state_dict.items():
        if not key.startswith('head.'):
            converted.update(_converted(key, value))
    return converted


def _converted(key: str, value: Tensor) -> dict[str, Tensor]:
    if match := _PUBLISHED.fullmatch(key):
        kind, number, rest = match.groups()
        kind = 'blocks' if kind == 'block' else kind
        return {f'stages.{int(number) - 1}.{kind}.{rest.replace("dwconv.dwconv", "dwconv")}': value}
    if match := _TIMM.fullmatch(key):
        place, rest = match.groups()
        place = 'stages.0.patch_embed.' if place == 'patch_embed.' else place.replace('downsample', 'patch_embed')
        return {place + rest: value}
    if match := _MMDET.fullmatch(key):
        stage, place, rest = match.groups()
        prefix = f'stages.{stage}.' + ('patch_embed.', 'blocks.', 'norm.')[int(place)]
        return {prefix + name: part for name, part in from_mmdet_block(rest, value).items()}
    raise ValueError(f"{key} is no parameter of a published PVTv2, of timm's or of mmdet's")
