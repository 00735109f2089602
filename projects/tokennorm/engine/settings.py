"""What the options of a training run, and `--tta` of an evaluation, change in the config."""

import logging
import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.logging import print_log

from tokennorm.argument_checks import LOGGERS
from tokennorm.checkpoints.finding import PACKAGED
from tokennorm.checkpoints.reading import read_state_dict
from tokennorm.config.image_size import test_scale
from tokennorm.config.tree import evaluators, innermost_datasets, is_classifier, walk
from tokennorm.environment import available_cores
from tokennorm.messages import UserError
from tokennorm.published import published_detector
from tokennorm.registry import type_name

VALIDATIONS = 10  # in a training run, at least
KEPT_CHECKPOINTS = 2  # besides the best one
LEAST_GAIN = 5e-4  # of the metric; mmdet rounds AP to 0.001
EMA_MOMENTUM = 2e-4  # as in mmdet's RTMDet
# Entries of a backbone that decide which weights fit it.
_NORM_AND_STEM = tuple(f'model.backbone.{key}' for key in ('token_norm_cfg', 'stem_cfg'))
_JITTER = (0.1, 2.0)
_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor', 'flip', 'flip_direction')
# The first view is the image itself: merged detections have the ground truth of that view, which --show-dir draws.
_FLIPPED = [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)]
_FLIPS = dict(type='TestTimeAug', transforms=[_FLIPPED, [dict(type='PackDetInputs', meta_keys=_KEYS)]])
_MERGE = dict(type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100))


def metric_of(cfg: Config) -> str | None:
    """Returns the metric that selects the best checkpoint: top-1 accuracy, mask AP where masks are learned, or box AP.

    None where nothing validates, or by other metrics than these.
    """
    for evaluator in evaluators(cfg, 'val'):
        kind = type_name(evaluator)
        if kind == 'CocoMetric':
            metrics = evaluator.get('metric', 'bbox')
            metrics = [metrics] if isinstance(metrics, str) else metrics
            prefix = evaluator.get('prefix', 'coco')
            return f'{prefix}/segm_mAP' if 'segm' in metrics else f'{prefix}/bbox_mAP'
        if kind == 'Accuracy' and is_classifier(cfg):
            return 'accuracy/top1'
    return None


def set_epochs(cfg: Config, epochs: int) -> None:
    """Sets the length of training."""
    loop = cfg.get('train_cfg') or {}
    if 'max_iters' in loop:
        raise ValueError('--epochs: this config counts iterations; use --cfg-options train_cfg.max_iters=N')
    loop['max_epochs'] = epochs


def validate_often(cfg: Config) -> list[str]:
    """Has training by epochs validate, and write a checkpoint, at least ten times: after every epoch of short runs."""
    loop = cfg.get('train_cfg') or {}
    if not loop.get('max_epochs') or cfg.get('val_dataloader') is None:
        return []
    interval = max(1, loop['max_epochs'] // VALIDATIONS)
    hook = _checkpoint_hook(cfg)
    changes = []
    if loop.get('val_interval', 1) > interval:
        changes.append(f'validation {every(interval)} (config: {every(loop["val_interval"])})')
        loop['val_interval'] = interval
    if hook is not None and hook.get('by_epoch', True) and hook.get('interval', 1) > interval:
        hook['interval'] = interval
    return changes


def every(interval: int) -> str:
    """Returns 'after every epoch' or 'after every 5 epochs'."""
    return f'after every {interval} epochs' if interval > 1 else 'after every epoch'


def keep_the_best(cfg: Config) -> None:
    """Has the checkpoint hook keep the best checkpoint, where the config selects none, and at most two others."""
    hook, metric = _checkpoint_hook(cfg), metric_of(cfg)
    if hook is None:
        return
    hook.setdefault('max_keep_ckpts', KEPT_CHECKPOINTS)
    if metric is not None and 'save_best' not in hook:
        hook.update(save_best=metric, rule='greater')


def average_weights(cfg: Config) -> None:
    """Adds an exponential moving average of the weights, which validation and the saved `state_dict` use."""
    hook = dict(type='EMAHook', ema_type='mmdet.ExpMomentumEMA', momentum=EMA_MOMENTUM, update_buffers=True)
    _add_hook(cfg, hook | dict(priority='ABOVE_NORMAL'))


def stop_early(cfg: Config, patience: int) -> None:
    """Stops training after `patience` validations without a better metric."""
    metric = metric_of(cfg)
    if metric is None:
        raise ValueError('--patience needs a validation by COCO AP or accuracy; this config has none')
    hook = dict(type='tokennorm.EarlyStoppingHook', monitor=metric, rule='greater', patience=patience)
    _add_hook(cfg, hook | dict(min_delta=LEAST_GAIN))


def log_to(cfg: Config, names: Sequence[str]) -> None:
    """Adds visualization backends of mmengine."""
    for name in names:
        cfg.setdefault('visualizer', dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')]))
        backends = list(cfg.visualizer.get('vis_backends') or [])
        if all(entry['type'] != LOGGERS[name] for entry in backends):
            cfg.visualizer.vis_backends = [*backends, dict(type=LOGGERS[name])]


def set_workers(cfg: Config, workers: int | None) -> None:
    """Sets the data workers of every loader; None for the cores of this machine per rank, less one, from 1 to 4."""
    if workers is None:
        workers = min(4, max(1, available_cores() // int(os.environ.get('LOCAL_WORLD_SIZE', 1)) - 1))
    for split in ('train', 'val', 'test'):
        loader = cfg.get(f'{split}_dataloader')
        if loader:
            loader.update(num_workers=workers, persistent_workers=workers > 0)


def _checkpoint_hook(cfg: Config) -> MutableMapping[str, Any] | None:
    cfg.setdefault('default_hooks', {})  # which returns a copy
    cfg.default_hooks.setdefault('checkpoint', dict(type='CheckpointHook', interval=1))
    return cfg.default_hooks.checkpoint


def _add_hook(cfg: Config, hook: Mapping[str, Any]) -> None:
    cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(hook)]


def augment_strongly(cfg: Config) -> str:
    """Replaces the training pipeline between loading and packing, and returns the change in one line."""
    dataset, scale = cfg.train_dataloader.dataset, test_scale(cfg)
    pipeline = list(dataset.get('pipeline') or [])
    loading = [step for step in pipeline if str(step['type']).startswith('Load')]
    packing = [step for step in pipeline if str(step['type']) == 'PackDetInputs']
    if scale is None or 'dataset' in dataset or len(loading) < 2 or not packing:
        raise ValueError('--augment strong: the training pipeline of this config does not load, resize and pack')
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


def use_tta(cfg: Config) -> tuple[ConfigDict, str]:
    """Replaces the pipeline of the test data by `tta_pipeline`, or by test images and their mirror images without one.

    Returns the model that merges the boxes of an image, for mmengine's `PrepareTTAHook`: the config's `tta_model`, or
    mmdet's default, which keeps at least as many per image as the detector. And a line that describes the views.
    """
    if is_classifier(cfg):
        raise UserError('--tta is for detectors; this config is a classifier')
    if any(name.endswith('mask_head') for name, _ in walk(cfg.model, 'model')):  # mmdet does not merge masks
        raise UserError('--tta merges boxes only, and this detector predicts masks; leave out --tta')
    for dataset in innermost_datasets(cfg.test_dataloader.dataset):
        dataset['pipeline'] = cfg.get('tta_pipeline') or [*dataset['pipeline'][:-1], deepcopy(_FLIPS)]
        views = prod(len(choices) for choices in dataset['pipeline'][-1]['transforms'])
    merge = ConfigDict(deepcopy(cfg.get('tta_model') or _MERGE))
    for name, limits in walk(cfg.model.get('test_cfg'), 'test_cfg'):
        if 'rpn' not in name and 'tta_cfg' in merge:  # a model of one's own may have other arguments
            merge.tta_cfg.max_per_img = max(merge.tta_cfg.get('max_per_img', 100), limits.get('max_per_img', 0))
    return merge, f'Test-time augmentation: {views} views per image, whose boxes are merged by NMS'


def use_initial_weights(cfg: Config, init: str | Path | None, own_data: bool, options: Iterable[str] = ()) -> list[str]:
    """Sets `load_from` and the backbone's `init_cfg`, and returns what training starts from in one line.

    `init` is that of `tokennorm.train`. With `options`, keys of `--cfg-options`, that set another norm or stem, it
    has no default.
    """
    backbone = cfg.model.get('backbone') or {}
    init_cfg = backbone.get('init_cfg')
    weights = init_cfg.get('checkpoint') if isinstance(init_cfg, Mapping) else None
    published = published_detector(Path(cfg.filename).stem)
    if init is None:
        if not own_data or cfg.get('load_from'):
            return []
        if changed := [key for key in options if key.startswith(_NORM_AND_STEM)]:
            raise ValueError(
                f'--cfg-options {changed[0]} changes the model, and the weights of its config may not fit it. Choose '
                'them with --init (none, FILE, coco or imagenet), or name a config with this norm and stem'
            )
        init = 'coco' if published else 'imagenet' if weights else 'none'
    if init == 'coco':
        if published is None:
            raise ValueError(f'--init coco: there is no published COCO detector of {Path(cfg.filename).stem}')
        cfg.load_from = published.url
        return [f'Initial weights: the COCO detector {published.name}, {published.url}']
    if init == 'imagenet':
        if not weights:
            raise ValueError(
                '--init imagenet: this config names no weights of its backbone (model.backbone.init_cfg); '
                'use --init FILE or --init none'
            )
        terms = f' ({PACKAGED[weights].terms})' if weights in PACKAGED else ''
        cfg.load_from = None
        return [f'Initial weights: the backbone, {weights}{terms}']
    if init == 'none':
        cfg.load_from = None
        if weights:
            backbone['init_cfg'] = None
        return ['Initial weights: none, random initialization']
    if any(key.startswith('backbone.') for key in read_state_dict(init)):
        cfg.load_from = str(init)
        return [f'Initial weights: the detector {init}']
    backbone['init_cfg'], cfg.load_from = dict(type='Pretrained', checkpoint=str(init)), None
    return [f'Initial weights: the backbone, {init}']


def use_weights_of_backbone(cfg: MutableMapping[str, Any]) -> None:
    """Leaves out a backbone's `init_cfg` where the whole detector is loaded (`load_from`, also to resume).

    Warns of a random initialization. Third-party backbones keep their own loaders.
    """
    backbone = cfg['model'].get('backbone') or {}
    if not str(backbone.get('type', '')).startswith('tokennorm.'):
        return
    if cfg.get('load_from'):
        backbone['init_cfg'] = None
    elif backbone.get('init_cfg') is None:
        print_log('model.backbone.init_cfg is None: the backbone is initialized at random.', level=logging.WARNING)
