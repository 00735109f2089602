"""The size that images are resized to, in training and in testing, and what else a detector was trained with."""

import math
import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS, TRANSFORMS

from tokennorm.config.tree import walk
from tokennorm.messages import UserError
from tokennorm.registry import arguments_of, type_name

# In the metainfo of a dataset, and so in checkpoints. Anchors are a path in the config and its value.
IMAGE_SIZE, ANCHORS = 'image_size', 'anchors'
_ANCHOR_SIZES = re.compile(r'model\.(rpn|bbox)_head\.anchor_generator\.(octave_base_scale|scales)')
MOST_ENLARGED = 2  # small images are enlarged by this factor at most
_STEP = 32  # sizes are multiples of it, in pixels
# Arguments of transforms and batch augmentations that are lengths in pixels where they are integers above 1.
_SIZES = ('scale', 'scales', 'img_scale', 'img_scales', 'crop_size', 'size', 'max_size', 'second_size', 'input_size')
_SIZES += ('width', 'height', 'shape', 'cutout_shape', 'border', 'padding', 'crop_padding', 'random_size_range')
_SIZES += ('max_shift_px', 'filter_thr_px', 'min_bbox_size', 'min_gt_bbox_wh', 'bbox_occluded_thr')
_AREAS = ('min_gt_mask_area', 'mask_occluded_thr')
_OF_MODELS = ('input_size', 'img_size', 'image_size', 'scale_ranges', 'regress_ranges')  # arguments that stay
_LIKE_SIZES = re.compile('size|scale|shape|width|height|border|pixel|px|edge|resolution|_wh|area')
_NO_SIZES = re.compile('divisor|patch|batch|val|pretrain|factor|num_|kernel|pad_size')
# Places of transforms: loaders, test-time augmentation, stages that hooks switch to, and augmentation of batches.
_PLACES = ('train_dataloader', 'val_dataloader', 'test_dataloader', 'tta_pipeline', 'custom_hooks')


def short_side(cfg: Config) -> int | None:
    """Returns the short side that test images are resized or cropped to, in pixels; None where nothing sets it."""
    scale = test_scale(cfg)
    return None if scale is None else min(scale)


def test_scale(cfg: Config) -> tuple[int, int] | None:
    """Returns the scale that test images are resized or cropped to in the end; None where there is no such step."""
    found: tuple[int, int] | None = None
    for _, step in walk(cfg.get('test_dataloader')):
        name, scale = type_name(step), step.get('scale')
        if name.endswith('CenterCrop'):
            found = _pair(step.get('crop_size')) or found
        elif 'Resize' in name and found is None:
            found = _pair([step.get('width'), step.get('height')]) or _pair([step.get('max_size'), scale])
            found = found or _pair(scale)
    return found


def _pair(value: Any) -> tuple[int, int] | None:
    """Two lengths in pixels of a pair or of the side of a square; None for anything else."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    return pair if len(pair) == 2 and all(isinstance(one, int | float) and one > 1 for one in pair) else None


def set_image_size(cfg: Config, size: int) -> list[str]:
    """Scales every length in pixels of the data so that test images get a short side of `size` pixels.

    These are the arguments of transforms in loaders, in test-time augmentation and in the pipelines of hooks, and of
    the augmentation of batches in the data preprocessor; they keep their ratio to the short side. Returns the changes,
    and what looks like a length in pixels but stays, one line each.
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
        defaults = {key: value for key, value in known.items() if key in (*_SIZES, *_AREAS)}
        for key, value in (defaults | dict(step)).items():
            if key in (*_SIZES, *_AREAS):
                scaled = _scaled(value, (size / old) ** (2 if key in _AREAS else 1))
                if key == 'random_size_range':  # rounded to multiples by the layer, and never to 0
                    scaled = type(value)(max(one, step.get('size_divisor', _STEP)) for one in scaled)
                elif (
                    key == 'size' and 'batch_augments' in name and scaled != value
                ):  # of images that were padded to multiples before
                    scaled = type(value)(math.ceil(one / _STEP) * _STEP for one in scaled)
                if scaled != value:
                    step[key] = scaled
            elif _is_length(key, value, old):
                left.append(f'{name}.{key}={value} ({type_name(step)})')
    for name, part in walk(cfg.get('model') or {}, 'model'):
        left += [f'{name}.{key}={part[key]}' for key in _OF_MODELS if key in part]
    lines = [f'images are resized to a short side of {size} pixels (config: {old})'] if size != old else []
    stays = ', '.join(re.sub(r'\[(\d+)\]', r'.\1', one) for one in left if size != old)
    note = f'warning: these look like sizes in pixels and stay; --cfg-options sets them: {stays}'
    return [*lines, note] if stays else lines


def _steps(cfg: Config) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Every dict with a type where transforms are, and its path."""
    model = cfg.get('model') or {}
    parts = {key: cfg.get(key) for key in (*_PLACES, 'data_preprocessor')}
    parts['model.data_preprocessor'] = model.get('data_preprocessor')
    for place, part in parts.items():
        yield from ((name, step) for name, step in walk(part, place) if 'type' in step)


def _is_length(key: str, value: Any, old: int) -> bool:
    """Whether an argument that is not known looks like a length in pixels, by its name or by the image size itself."""
    numbers = value if isinstance(value, list | tuple) else [value]
    whole = [one for one in numbers if isinstance(one, int) and not isinstance(one, bool)]
    named = bool(_LIKE_SIZES.search(key)) and not _NO_SIZES.search(key)
    return any((abs(one) >= _STEP and named) or (abs(one) == old and old > 2 * _STEP) for one in whole)


def use_trained_size(cfg: Config, meta: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> list[str]:
    """Sets the image size that a checkpoint's `dataset_meta` names, unless the user's `options` set that of testing.

    Returns the change in one line, if any.
    """
    paths = [path.split('.') for path in options or () if path.startswith('test_dataloader.')]
    is_chosen = any(path[-1] == 'pipeline' or set(path) & set(_SIZES) for path in paths)
    if is_chosen or not meta.get(IMAGE_SIZE) or short_side(cfg) in (None, meta[IMAGE_SIZE]):
        return []
    return set_image_size(cfg, meta[IMAGE_SIZE])[:1]


def use_trained_anchors(cfg: Config, meta: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> list[str]:
    """Sets the sizes of anchors that a checkpoint's `dataset_meta` names, unless the user's `options` set them.

    Returns the change in one line, if any.
    """
    noted = meta.get(ANCHORS)
    path, value = noted if isinstance(noted, list | tuple) and len(noted) == 2 else ('', None)
    numbers = value if isinstance(value, list | tuple) else [value]
    if not _ANCHOR_SIZES.fullmatch(str(path)) or not (numbers and all(type(one) in (int, float) for one in numbers)):
        return []  # nothing else of the config is taken from a file of others
    generator, _, key = path.rpartition('.')
    old = dict(walk(cfg.get('model') or {}, 'model')).get(generator, {}).get(key)
    if (
        old is None
        or path in (options or {})
        or list(numbers) == (list(old) if isinstance(old, list | tuple) else [old])
    ):
        return []
    cfg.merge_from_dict({path: value})
    return [f'{path}={value}, with which the weights were trained (config: {old})']


def fitting_size(cfg: Config, median_short_side: float) -> int | None:
    """Returns a size for images that the config would enlarge more than twofold; None where it fits."""
    size = short_side(cfg)
    most = max(_STEP, round(MOST_ENLARGED * median_short_side / _STEP) * _STEP)
    return most if size is not None and size > MOST_ENLARGED * median_short_side and most < size else None


def _scaled(value: Any, factor: float) -> Any:
    """Lengths of one or several scales; relative sizes, which are floats or at most 1, and flags stay."""
    if isinstance(value, list | tuple):
        return type(value)(_scaled(one, factor) for one in value)
    is_length = isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1
    return int(math.copysign(max(1, round(abs(value) * factor)), value)) if is_length else value
