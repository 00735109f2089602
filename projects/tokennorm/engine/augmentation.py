"""`--augment strong`: large-scale jitter, and without masks Mosaic and MixUp. Classes that mirrored images exchange."""

import re

from mmengine.config import Config

from tokennorm.config.image_size import test_scale
from tokennorm.config.tree import innermost_datasets, walk
from tokennorm.messages import UserError, shorten
from tokennorm.registry import type_name

_JITTER = (0.1, 2.0)
_LEFT = re.compile(r'left|(?<![a-z])l(?![a-z])|east|(counter|anti)[- ]?(?=clockwise)')  # as in `hand_L`
_RIGHT = dict(left='right', l='r', east='west')


def augment_strongly(cfg: Config) -> str:
    """Replaces the training pipeline between loading and packing, and returns the change in one line."""
    dataset, scale = cfg.train_dataloader.dataset, test_scale(cfg)
    pipeline = list(dataset.get('pipeline') or [])
    loading = [step for step in pipeline if type_name(step).startswith('Load')]
    packing = [step for step in pipeline if type_name(step) == 'PackDetInputs']
    if 'dataset' in dataset:
        raise UserError(f'--augment strong: the training data of this config is inside a {type_name(dataset)}')
    if scale is None or len(loading) < 2 or not packing:
        raise UserError('--augment strong: the training pipeline of this config does not load, resize and pack')
    # mmdet's scales are (width, height) for Mosaic and (long side, short side) for a resize.
    flip = dict(type='RandomFlip', prob=0.5)
    keep = dict(type='FilterAnnotations', min_gt_bbox_wh=(1, 1), keep_empty=False)
    if any(step.get('with_mask') for step in loading):
        resize = dict(type='RandomResize', scale=scale, ratio_range=_JITTER, keep_ratio=True)
        side = max(scale)  # a square, as images are landscape or portrait; RandomCrop takes (width, height)
        crop = dict(type='RandomCrop', crop_size=(side, side), recompute_bbox=True, allow_negative_crop=True)
        dataset['pipeline'] = [*loading, resize, crop, keep, flip, *packing]
        return '--augment strong: large-scale jitter of 0.1 to 2, and a crop'
    affine = dict(
        type='RandomAffine', scaling_ratio_range=_JITTER, border=(-scale[0] // 2, -scale[1] // 2), border_val=(114,) * 3
    )
    mixup = dict(type='MixUp', img_scale=scale, ratio_range=(0.8, 1.6), pad_val=114.0)
    # A mosaic of images without objects would train on nothing.
    inner = dict(dataset, pipeline=loading, filter_cfg=dict(filter_empty_gt=True, min_size=0))
    cfg.train_dataloader.dataset = dict(
        type='MultiImageMixDataset',
        dataset=inner,
        pipeline=[dict(type='Mosaic', img_scale=scale, pad_val=114.0), affine, mixup, flip, keep, *packing],
    )
    return '--augment strong: Mosaic, large-scale jitter of 0.1 to 2, MixUp; images without objects are left out'


def describe_flips(cfg: Config) -> list[str]:
    """Returns one line if training mirrors classes that differ in left and right, or are characters, or none."""
    loader = cfg.get('train_dataloader') or {}
    metainfo = next(innermost_datasets(loader.get('dataset') or {})).get('metainfo') or {}
    classes = metainfo.get('classes') or ()
    names = {str(name).casefold(): str(name) for name in classes if not isinstance(classes, str)}  # or a file
    other = {key: _LEFT.sub(lambda found: _RIGHT.get(found[0], ''), key) for key in names if _LEFT.search(key)}
    pairs = [f'{names[left]} and {names[right]}' for left, right in other.items() if right in names]
    single = [name for name in names.values() if len(name) == 1 and name.isascii()]
    if sum(map(str.isalnum, single)) > 7:
        pairs.append(f'characters with their mirror images ({shorten(single, 4)})')
    steps = walk(loader, 'train_dataloader')
    flips = [name for name, step in steps if type_name(step) == 'RandomFlip' and step.get('prob') != 0]
    if not pairs or not flips:
        return []
    off = ' '.join(re.sub(r'\[(\d+)\]', r'.\1', f'{name}.prob=0') for name in flips)
    return [f'Training mirrors images, which exchanges {shorten(pairs, 3)}. To keep them apart: --cfg-options {off}']
