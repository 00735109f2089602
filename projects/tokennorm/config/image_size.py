"""The size that images are resized to, in training and in testing."""

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config

from tokennorm.config.tree import walk
from tokennorm.messages import UserError
from tokennorm.registry import type_name

IMAGE_SIZE = 'image_size'  # in the metainfo of a dataset, and so in checkpoints
MOST_ENLARGED = 2  # small images are enlarged by this factor at most
_SIZES = ('scale', 'scales', 'img_scale', 'crop_size', 'size')
_STEPS = ('Resize', 'RandomResize', 'RandomChoiceResize', 'RandomCrop', 'Mosaic', 'MixUp', 'Pad', 'FixShapeResize')
_STEP = 32  # sizes are multiples of it, in pixels


def short_side(cfg: Config) -> int | None:
    """Returns the short side that test images are resized to, in pixels; None where nothing resizes them."""
    scale = test_scale(cfg)
    return None if scale is None else min(scale)


def test_scale(cfg: Config) -> tuple[int, int] | None:
    """Returns the `scale` of the step that resizes test images; None where there is no such step."""
    for _, step in walk(cfg.get('test_dataloader')):
        if type_name(step).endswith('Resize') and isinstance(step.get('scale'), tuple | list):
            return tuple(step['scale'])
    return None


def set_image_size(cfg: Config, size: int) -> list[str]:
    """Scales every resize and crop of the pipelines so that test images get a short side of `size` pixels.

    Long sides and the ranges of random sizes keep their ratio to the short side. Returns the changes, one line each.
    """
    old = short_side(cfg)
    if old is None:
        raise UserError('--image-size: test_pipeline of this config has no Resize with a scale')
    seen: set[int] = set()
    parts = [cfg.get(key) for key in ('train_dataloader', 'val_dataloader', 'test_dataloader', 'tta_pipeline')]
    for _, step in walk(parts):
        if id(step) not in seen and type_name(step) in _STEPS:
            seen.add(id(step))
            step.update(
                {key: _scaled(step[key], size / old) for key in _SIZES if isinstance(step.get(key), list | tuple)}
            )
    return [f'images are resized to a short side of {size} pixels (config: {old})']


def use_trained_size(cfg: Config, meta: Mapping[str, Any]) -> None:
    """Sets the image size that a checkpoint was trained with, where its `dataset_meta` names one."""
    if meta.get(IMAGE_SIZE) and short_side(cfg) not in (None, meta[IMAGE_SIZE]):
        set_image_size(cfg, meta[IMAGE_SIZE])


def fitting_size(cfg: Config, median_short_side: float) -> int | None:
    """Returns a size for images that the config would enlarge more than twofold; None where it fits."""
    size = short_side(cfg)
    most = max(_STEP, round(MOST_ENLARGED * median_short_side / _STEP) * _STEP)
    return most if size is not None and size > MOST_ENLARGED * median_short_side and most < size else None


def _scaled(value: Any, factor: float) -> Any:
    """Absolute sizes of one or several scales; relative sizes below 1 stay."""
    if isinstance(value, list | tuple):
        return type(value)(_scaled(one, factor) for one in value)
    return round(value * factor) if value > 1 else value
