"""`--augment strong`: large-scale jitter, and without masks Mosaic and MixUp."""

from mmengine.config import Config

from tokennorm.base.messages import UserError
from tokennorm.plan.image_size import test_scale
from tokennorm.registry import type_name

_JITTER = (0.1, 2.0)


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
