"""Rules about models and their weights, and about checkpoints."""

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from mmengine.hooks import EMAHook
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tokennorm.backbones.base import Backbone
from tokennorm.checkpoints.reading import common_meta
from tokennorm.config.tree import walk
from tokennorm.engine.rules.built import Built, Lines, rule
from tokennorm.messages import shorten
from tokennorm.plan.image_size import short_side
from tokennorm.registry import type_name

IMAGENET_PIXELS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of RGB, from 0 to 1
SAME_PIXELS = 3  # difference, of 255, of a mean or standard deviation that does not matter
MOST_LOST = 0.1  # a score threshold that costs hardly any AP
LEAST_FITTING = 0.5  # of the tensors of a backbone


# ---- shapes


def _feature_info(model: Any) -> Any:
    return getattr(getattr(model, 'backbone', None), 'feature_info', None)


@torch.no_grad()
def _neck_maps(model: Any, side: int) -> Any:
    """Returns the feature maps of the neck for a square image, as tensors without values, or its error."""
    neck, device = model.neck, next(model.parameters()).device
    was_training = neck.training
    neck.eval()  # keeps the statistics of batch norms
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            sizes = [(entry['num_chs'], side // entry['reduction']) for entry in model.backbone.feature_info]
            return neck(tuple(torch.zeros(1, channels, s, s, device=device) for channels, s in sizes))
    except (RuntimeError, AssertionError, IndexError) as error:  # also of operators that need values, as in DyHead
        return error
    finally:
        neck.train(was_training)


def _strides(model: Any) -> tuple[str, list[int]]:
    """Returns the head with anchors or points, and their strides."""
    for name in ('rpn_head', 'bbox_head'):
        if strides := getattr(getattr(getattr(model, name, None), 'prior_generator', None), 'strides', None):
            return name, [stride[0] for stride in strides]
    return '', []


@rule('built', 'neck-channels')
def _(built: Built) -> Lines:
    if not (info := _feature_info(built.model)):
        return
    channels, neck = [entry['num_chs'] for entry in info], getattr(built.model, 'neck', None)
    if neck is None or next(neck.parameters(), None) is None:  # as the pooling of a classifier
        name, part, error = 'head', getattr(built.model, 'head', None), 'channels'
    else:
        name, part = 'neck', neck[0] if isinstance(neck, nn.Sequential) else neck
        error = _neck_maps(built.model, 4 * math.lcm(*(entry['reduction'] for entry in info)))
    given = getattr(part, 'in_channels', None)
    fits = given is None or (given == channels[-1] if isinstance(given, int) else sorted(given) == sorted(channels))
    if isinstance(error, str | Exception) and (not fits or (given is None and 'channels in' in str(error))):
        text = f'in_channels={given}' if given else str(error)
        yield f'model.{name}', f'{text}, but the feature maps of {type(built.model.backbone).__name__} have {channels}'


@rule('built', 'anchor-strides')
def _(built: Built) -> Lines:
    info, (head, strides) = _feature_info(built.model), _strides(built.model)
    is_padded = all(stride & (stride - 1) == 0 for stride in strides)  # SSD300 is not
    if info and strides and is_padded and getattr(built.model, 'neck', None) is not None:
        side = 4 * math.lcm(*strides, *(entry['reduction'] for entry in info))
        maps = _neck_maps(built.model, side)
        if not isinstance(maps, Exception) and (of_maps := [side // out.shape[-1] for out in maps]) != strides:
            yield f'model.{head}', f'the strides of its anchors are {strides}, those of the feature maps {of_maps}'


@rule('built', 'few-positions')
def _(built: Built) -> Lines:
    model, size = built.model, short_side(built.cfg)
    if size is None or not getattr(model, 'as_two_stage', False) or not hasattr(model, 'num_feature_levels'):
        return
    steps = [step for _, step in walk(built.cfg.get('train_dataloader')) if 'Resize' in type_name(step)]
    scales = [scale for step in steps for scale in step.get('scales') or [step.get('scale')]]
    least = min([size, *(min(scale) for scale in scales if isinstance(scale, list | tuple))])

    def positions(side: float) -> int:  # of square images, on maps of strides up to 64
        return sum(math.ceil(side / 2**i) ** 2 for i in range(7 - model.num_feature_levels, 7))

    if positions(least) < model.num_queries:
        enough = next(side for side in range(size, 2**14) if positions(side * least / size) >= model.num_queries)
        few = f'images of {least} x {least} pixels, the smallest of training, have {positions(least)} positions'
        ways = f'--image-size {-(-enough // 32) * 32} or more, or --cfg-options model.num_queries={positions(least)}'
        yield f'model.num_queries={model.num_queries}', f'{few}: use {ways}'


# ---- weights


def _random_backbone(built: Built) -> Any:
    """Returns a backbone of this package that starts from random weights, or None."""
    backbone = getattr(built.model, 'backbone', None)
    is_random = isinstance(backbone, Backbone) and backbone.init_cfg is None and not built.cfg.get('load_from')
    return backbone if is_random and 'train' in built.splits else None


@rule('built', 'random-frozen')
def _(built: Built) -> Lines:
    if (frozen := getattr(_random_backbone(built), 'frozen_stages', -1)) >= 0:
        yield f'model.backbone.frozen_stages={frozen}', 'it would keep random stages'


@rule('built', 'random-backbone')
def _(built: Built) -> Lines:
    if getattr(_random_backbone(built), 'frozen_stages', 0) < 0:
        yield ()


@rule('built', 'other-pixels')
def _(built: Built) -> Lines:
    """Half of timm's ViTs have a mean and standard deviation of 0.5; YOLOX and RTMDet have BGR pixels."""
    backbone, given = getattr(built.model, 'backbone', None), getattr(built.model, 'data_preprocessor', None)
    init_cfg = getattr(backbone, 'init_cfg', None)
    weights = init_cfg.get('checkpoint') if isinstance(init_cfg, Mapping) else None
    if not isinstance(backbone, Backbone) or not weights or built.cfg.get('load_from') or 'train' not in built.splits:
        return
    model_name = built.cfg['model']['backbone'].get('model_name')
    if (wanted := _pixels(type(backbone).__name__, model_name, str(weights))) is None:
        return
    mean, std = getattr(given, 'mean', torch.zeros(3)).flatten(), getattr(given, 'std', torch.ones(3)).flatten()
    values = [*mean.tolist(), *std.tolist()]
    is_rgb = getattr(given, '_channel_conversion', False) or getattr(given, 'to_rgb', False)  # files are read as BGR
    near = all(abs(a - b) <= SAME_PIXELS for a, b in zip(values, wanted, strict=False))
    if len(values) == len(wanted) and not (near and is_rgb):  # not with one channel
        text = f'RGB pixels of mean={wanted[:3]} and std={wanted[3:]}, and data_preprocessor gives others'
        yield f'weights of {model_name or type(backbone).__name__}', f'{weights} is probably for {text}'


def _pixels(class_name: str, model_name: str | None, weights: str) -> list[float] | None:
    """Returns mean and standard deviation, up to 255, that published weights are for, or None."""
    known = (
        IMAGENET_PIXELS
        if class_name in ('PVT', 'PVTv2', 'Swin') or (not model_name and 'deit' in Path(weights).name)
        else None
    )
    for name in (weights, str(model_name)) if known is None else ():
        with suppress(RuntimeError, ImportError):  # a tag that the model does not have, such as the suffix of a file
            from timm import get_pretrained_cfg

            published = get_pretrained_cfg(name.rpartition('timm/')[2])
            known = known or (published and (published.mean, published.std))
    return known and [round(255 * value, 2) for values in known for value in values]


@rule('built', 'low-scores')
def _(built: Built) -> Lines:
    parts = walk(getattr(built.model, 'test_cfg', None), 'model.test_cfg')
    values = {f'{name}.score_thr': part.get('score_thr') for name, part in parts if 'rcnn' not in part}
    high = [f'{name}={value}' for name, value in values.items() if isinstance(value, float) and value > MOST_LOST]
    if high and any(hasattr(metric, 'iou_thrs') for metrics in built.metrics.values() for metric in metrics):
        yield '', 'detections with scores below these are dropped, which makes AP too low', high


# ---- checkpoints


@rule('checkpoint', 'checkpoint-classes')
def _(built: Built) -> Lines:
    if 'train' in built.splits and not built.cfg.get('resume'):  # the heads may be new
        return
    classes = common_meta(getattr(next(iter(built.data.values())), 'metainfo', None)).get('classes')
    trained = built.checkpoint.dataset_meta.get('classes')
    if classes and trained and list(trained) != list(classes) and built.cfg.get('load_from'):
        reason = 'in another order' if sorted(trained) == sorted(classes) else 'not the same'
        both = f'{len(trained)} ({", ".join(trained)}) and {len(classes)} ({", ".join(classes)})'
        yield '', f'the classes of {built.checkpoint.source} and of the data are {reason}: {both}'


@rule('checkpoint', 'no-training-state')
def _(built: Built) -> Lines:
    if built.cfg.get('resume') and 'optimizer' not in built.checkpoint.content:
        yield '--resume', f'{built.checkpoint.source} has only weights, not the state of a training run'


@rule('checkpoint', 'averaged-weights')
def _(built: Built) -> Lines:
    averages = any(isinstance(hook, EMAHook) for hook in built.hooks)
    if built.cfg.get('resume') and 'ema_state_dict' in built.checkpoint.content and not averages:
        yield '--resume', f'the weights in {built.checkpoint.source} are an average, and this run has none'


@rule('checkpoint', 'partial-weights')
def _(built: Built) -> Lines:
    backbone = getattr(built.model, 'backbone', None)
    if built.cfg.get('load_from') or backbone is None or hasattr(backbone, 'layouts'):  # these check every tensor
        return
    state_dict, init_cfg = backbone.state_dict(), getattr(backbone, 'init_cfg', None) or {}
    prefix, tensors = init_cfg.get('prefix', ''), built.checkpoint.state_dict
    given = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    fitting = sum(key in given and given[key].shape == value.shape for key, value in state_dict.items())
    if fitting < LEAST_FITTING * len(state_dict):
        text = f'{built.checkpoint.source} has {fitting} of the {len(state_dict)} tensors of {type(backbone).__name__}'
        yield '--init', f'{text}, and names such as {shorten(list(tensors), 3)}'
