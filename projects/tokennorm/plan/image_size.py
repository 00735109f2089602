"""The size that images are resized to, in training and in testing."""

import math
import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS, TRANSFORMS

from tokennorm.base.messages import UserError
from tokennorm.config.tree import as_list, walk
from tokennorm.registry import arguments_of, type_name

MOST_ENLARGED = 2  # small images are enlarged by this factor at most
_STEP = 32  # sizes are multiples of it, in pixels
# Arguments of transforms and batch augmentations that are lengths in pixels where they are integers above 1.
PIXEL_ARGUMENTS = (
    *('scale', 'scales', 'img_scale', 'img_scales', 'crop_size', 'size', 'max_size', 'second_size', 'input_size'),
    *('width', 'height', 'shape', 'cutout_shape', 'border', 'padding', 'crop_padding', 'random_size_range'),
    *('max_shift_px', 'filter_thr_px', 'min_bbox_size', 'min_gt_bbox_wh', 'bbox_occluded_thr'),
)
AREA_ARGUMENTS = ('min_gt_mask_area', 'mask_occluded_thr')
MODEL_ARGUMENTS = ('input_size', 'img_size', 'image_size', 'scale_ranges', 'regress_ranges')  # arguments that stay
LOOKS_LIKE_PIXELS = re.compile('size|scale|shape|width|height|border|pixel|px|edge|resolution|_wh|area')
NOT_PIXELS = re.compile('divisor|patch|batch|val|pretrain|factor|num_|kernel|pad_size')
# Places of transforms: loaders, test-time augmentation, stages that hooks switch to, and augmentation of batches.
_PLACES = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'tta_pipeline', 'custom_hooks')


def short_side(cfg: Config) -> int | None:
    """Returns the short side that test images are resized or cropped to, in pixels; None where nothing sets it."""
    scale = test_scale(cfg)
    return None if scale is None else min(scale)


def test_scale(cfg: Config) -> tuple[int, int] | None:
    """Returns the scale that test images are resized or cropped to in the end; None where there is no such step."""
    size: tuple[int, int] | None = None
    for _, step in walk(cfg.get('test_dataloader')):
        name, scale = type_name(step), step.get('scale')
        if name.endswith('CenterCrop'):
            size = _pair(step.get('crop_size')) or size
        elif 'Resize' in name and size is None:
            size = _pair([step.get('width'), step.get('height')]) or _pair([step.get('max_size'), scale])
            size = size or _pair(scale)
    return size


def _pair(value: Any) -> tuple[int, int] | None:
    """Two lengths in pixels of a pair or of the side of a square; None for anything else."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    return pair if len(pair) == 2 and all(isinstance(side, int | float) and side > 1 for side in pair) else None


def set_image_size(cfg: Config, size: int) -> list[str]:
    """Scales every length in pixels of the data so that test images get a short side of `size` pixels.

    These are the arguments of transforms in loaders, in test-time augmentation and in the pipelines of hooks, and of
    the augmentation of batches in the data preprocessor; they keep their ratio to the short side. Returns the entries
    that look like lengths in pixels but stay.
    """
    old = short_side(cfg)
    if old is None:
        raise UserError(
            '--image-size: the test pipeline of this config neither resizes to a scale nor crops the center'
        )
    seen: set[int] = set()
    left = []
    for name, step in _steps(cfg):
        if id(step) in seen:
            continue
        seen.add(id(step))
        known = arguments_of(step, cfg.get('default_scope'), TRANSFORMS, MODELS)
        defaults = {key: value for key, value in known.items() if key in (*PIXEL_ARGUMENTS, *AREA_ARGUMENTS)}
        for key, value in (defaults | dict(step)).items():
            if key in (*PIXEL_ARGUMENTS, *AREA_ARGUMENTS):
                scaled = _scaled(value, (size / old) ** (2 if key in AREA_ARGUMENTS else 1))
                if key == 'random_size_range':  # rounded to multiples by the layer, and never to 0
                    scaled = type(value)(max(side, step.get('size_divisor', _STEP)) for side in scaled)
                elif (
                    key == 'size' and 'batch_augments' in name and scaled != value
                ):  # of images that were padded to multiples before
                    scaled = type(value)(math.ceil(side / _STEP) * _STEP for side in scaled)
                if scaled != value:
                    step[key] = scaled
            elif _is_length(key, value, old):
                left.append(f'{name}.{key}={value} ({type_name(step)})')
    for name, part in walk(cfg.get('model') or {}, 'model'):
        left += [f'{name}.{key}={part[key]}' for key in MODEL_ARGUMENTS if key in part]
    return left if size != old else []


def _steps(cfg: Config) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Every dict with a type where transforms are, and its path."""
    model = cfg.get('model') or {}
    parts = {key: cfg.get(key) for key in (*_PLACES, 'data_preprocessor')}
    parts['model.data_preprocessor'] = model.get('data_preprocessor')
    for place, part in parts.items():
        yield from ((name, step) for name, step in walk(part, place) if 'type' in step)


def _is_length(key: str, value: Any, old: int) -> bool:
    """Returns whether an unknown argument looks like a length in pixels, by its name or by the image size itself."""
    whole = [number for number in as_list(value) if type(number) is int]
    named = bool(LOOKS_LIKE_PIXELS.search(key)) and not NOT_PIXELS.search(key)
    return any((abs(number) >= _STEP and named) or (abs(number) == old and old > 2 * _STEP) for number in whole)


def fitting_size(cfg: Config, median_short_side: float) -> int | None:
    """Returns a size for images that the config would enlarge more than twofold; None where it fits."""
    size = short_side(cfg)
    most = max(_STEP, round(MOST_ENLARGED * median_short_side / _STEP) * _STEP)
    return most if size is not None and size > MOST_ENLARGED * median_short_side and most < size else None


def _scaled(value: Any, factor: float) -> Any:
    """Lengths of one or several scales; relative sizes, which are floats or at most 1, and flags stay."""
    if isinstance(value, list | tuple):
        return type(value)(_scaled(entry, factor) for entry in value)
    is_length = isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1
    return int(math.copysign(max(1, round(abs(value) * factor)), value)) if is_length else value
