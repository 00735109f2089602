"""Rules about models and their weights, and about checkpoints."""

import math
from typing import Any

import torch
from mmengine.hooks import EMAHook
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tokennorm.backbones.base import Backbone
from tokennorm.base.messages import shorten
from tokennorm.checkpoints.class_rows import rows_by_name
from tokennorm.checkpoints.reading import common_meta
from tokennorm.config.tree import walk
from tokennorm.engine.rules.built import Built, Lines, rule
from tokennorm.norms.layer_norm import GridNorm

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
    powers = all(isinstance(stride, int) and stride & (stride - 1) == 0 for stride in strides)  # not of SSD, YOLACT
    if info and strides and powers and getattr(built.model, 'neck', None) is not None:
        side = 4 * math.lcm(*strides, *(entry['reduction'] for entry in info))
        maps = _neck_maps(built.model, side)
        if not isinstance(maps, Exception) and (of_maps := [side // out.shape[-1] for out in maps]) != strides:
            yield f'model.{head}', f'the strides of its anchors are {strides}, those of the feature maps {of_maps}'


@rule('export', 'padded-norms')
def _(built: Built) -> Lines:
    kinds = nn.GroupNorm, nn.modules.instancenorm._InstanceNorm
    parts = built.model.named_modules()
    norms = [name for name, part in parts if isinstance(part, kinds) and not isinstance(part, GridNorm)]
    if norms and built.batch_size is None:  # a file for one image cuts its padding off
        yield '', 'padding around an image changes its detections, as these norms have statistics over positions', norms


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
    if 'train' in built.splits and not built.cfg.get('resume'):  # `class_rows` takes rows by name
        return
    classes = common_meta(getattr(next(iter(built.data.values())), 'metainfo', None)).get('classes')
    trained = built.checkpoint.dataset_meta.get('classes')
    if not (classes and trained and built.cfg.get('load_from')):
        return
    if (rows := rows_by_name(trained, classes)) != list(range(len(trained))):
        reason = 'not the same' if None in rows or len(rows) != len(trained) else 'in another order'
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
