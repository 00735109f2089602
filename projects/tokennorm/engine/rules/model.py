"""Rules about models and their weights, and about checkpoints."""

import math
from typing import Any

from tokennorm.base.messages import shorten
from tokennorm.config.tree import walk
from tokennorm.engine.rules.built import Built, Lines
from tokennorm.findings import Rule, current, rule

MOST_LOST = 0.1  # a score threshold that costs hardly any AP
LEAST_FITTING = 0.5  # of the tensors of a backbone


# ---- shapes


def _feature_info(model: Any) -> Any:
    return getattr(getattr(model, 'backbone', None), 'feature_info', None)


def _neck_maps(model: Any, side: int) -> Any:
    """Returns the feature maps of the neck for a square image, as tensors without values, or its error."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    neck, device = model.neck, next(model.parameters()).device
    was_training = neck.training
    neck.eval()  # keeps the statistics of batch norms
    try:
        with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
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


@rule('neck-channels', 'error', 'the channels of the feature maps are not those that follow', on='built',
      about='config', can_allow=False, why='The first step would fail.',
      do='Set in_channels to those of the backbone')  # fmt: skip
def neck_channels(built: Built) -> Lines:
    from torch import nn

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


@rule('anchor-strides', 'error', 'the anchors have other strides than the feature maps', on='built', about='config',
      why='Anchors would be at other places of the image than the features that predict from them.',
      do='Change out_indices of the backbone, start_level and num_outs of the neck, or the anchors; a backbone with '
         'one feature map needs a patch size of 16 and the neck tokennorm.SimpleFeaturePyramid')  # fmt: skip
def anchor_strides(built: Built) -> Lines:
    info, (head, strides) = _feature_info(built.model), _strides(built.model)
    powers = all(isinstance(stride, int) and stride & (stride - 1) == 0 for stride in strides)  # not of SSD, YOLACT
    if info and strides and powers and getattr(built.model, 'neck', None) is not None:
        side = 4 * math.lcm(*strides, *(entry['reduction'] for entry in info))
        maps = _neck_maps(built.model, side)
        if not isinstance(maps, Exception) and (of_maps := [side // out.shape[-1] for out in maps]) != strides:
            yield f'model.{head}', f'the strides of its anchors are {strides}, those of the feature maps {of_maps}'


@rule('padded-norms', 'warning', 'norms of the detector have statistics over positions', on='export', about='config',
      why='GroupNorm and InstanceNorm of a neck or a head see the padding of a batch or of a larger canvas; the '
          'normalizers of this package leave it out.',

      do="Export with `--batch-size 1`, give the file images without padding, or train with "
         "norm_cfg=dict(type='tokennorm.LN2d')")  # fmt: skip
def padded_norms(built: Built) -> Lines:
    from torch import nn

    from tokennorm.norms.layer_norm import GridNorm

    kinds = nn.GroupNorm, nn.modules.instancenorm._InstanceNorm
    parts = built.model.named_modules()
    norms = [name for name, part in parts if isinstance(part, kinds) and not isinstance(part, GridNorm)]
    if norms and built.batch_size is None:  # a file for one image cuts its padding off
        yield '', 'padding around an image changes its detections, as these norms have statistics over positions', norms


PADDED_DETECTIONS = Rule('padded-detections', 'warning', 'detections of an image change with the padding around it',
    about='config',
    why='A server or a phone with one canvas for all images gets other detections than the AP was measured with. Norms '
        'with statistics over positions let padding in, and so do convolutions and attention without `mask_padding`. '
        'It is not a matter of images that are given without padding.',

    do="Export with `--batch-size 1`, give the file images without padding, or train with "
       "model.type='tokennorm.RetinaNet', 'tokennorm.FasterRCNN' or 'tokennorm.MaskRCNN', and "
       "norm_cfg=dict(type='tokennorm.LN2d')")  # fmt: skip


# ---- weights

_NAME_WEIGHTS = 'name weights in model.backbone.init_cfg, as `tokennorm train --init` does'


def _random_backbone(built: Built) -> Any:
    """Returns a backbone of this package that starts from random weights, or None."""
    from tokennorm.backbones.base import Backbone

    backbone = getattr(built.model, 'backbone', None)
    is_random = isinstance(backbone, Backbone) and backbone.init_cfg is None and not built.cfg.get('load_from')
    return backbone if is_random and 'train' in built.splits else None


@rule('random-frozen', 'error', 'frozen stages would stay random', on='built', about='config',
      why='Stages that are not trained need trained weights.',
      do=f'Set model.backbone.frozen_stages=-1, or {_NAME_WEIGHTS}')  # fmt: skip
def random_frozen(built: Built) -> Lines:
    if (frozen := getattr(_random_backbone(built), 'frozen_stages', -1)) >= 0:
        yield f'model.backbone.frozen_stages={frozen}', 'it would keep random stages'


@rule('random-backbone', 'warning', 'the backbone is initialized at random: model.backbone.init_cfg is None',
      on='built', about='config', why='Training from random weights needs far more epochs.',
      do=_NAME_WEIGHTS.capitalize())  # fmt: skip
def random_backbone(built: Built) -> Lines:
    if getattr(_random_backbone(built), 'frozen_stages', 0) < 0:
        yield ()


@rule('low-scores', 'warning', 'detections with scores that AP counts are dropped', on='built', about='config',
      why='Configs for deployment drop low scores; AP is then too low.',
      do='Lower score_thr to 0.05 or less')  # fmt: skip
def low_scores(built: Built) -> Lines:
    parts = walk(getattr(built.model, 'test_cfg', None), 'model.test_cfg')
    values = {f'{name}.score_thr': part.get('score_thr') for name, part in parts if 'rcnn' not in part}
    high = [f'{name}={value}' for name, value in values.items() if isinstance(value, float) and value > MOST_LOST]
    if high and any(hasattr(metric, 'iou_thrs') for metrics in built.metrics.values() for metric in metrics):
        yield '', 'detections with scores below these are dropped, which makes AP too low', high


# ---- checkpoints

OTHER_OPTIMIZER = Rule('other-optimizer', 'error', 'the checkpoint to resume is of another optimizer',
    about='checkpoint', can_allow=False, why='The state of its parameters does not fit.',
    do='Keep its type, paramwise_cfg and frozen stages, as the config in the directory of the run has them, or start a '
       'new run with --init FILE')  # fmt: skip


@rule('checkpoint-classes', 'error', 'the checkpoint was trained with other classes', on='checkpoint',
      about='checkpoint', why='Its outputs would get the names of other classes.',
      do='Use the data that it was trained for, with --data or the config in its work directory, with its categories '
         'in that order')  # fmt: skip
def checkpoint_classes(built: Built) -> Lines:
    from tokennorm.checkpoints.class_rows import describe_difference
    from tokennorm.checkpoints.safe_reading import common_meta

    is_new = 'train' in built.splits and not built.cfg.get('resume')
    if is_new and 'checkpoint-classes' not in current().allowed:  # `class_rows` takes rows by name
        return
    classes = common_meta(getattr(next(iter(built.data.values())), 'metainfo', None)).get('classes')
    trained = built.checkpoint.dataset_meta.get('classes')
    if not (classes and trained and built.cfg.get('load_from')):
        return
    if difference := describe_difference(trained, classes):
        yield '', f'the classes of {built.checkpoint.source} and of the data are {difference}'


@rule('no-training-state', 'error', 'the checkpoint has only weights, not the state of a training run', on='checkpoint',
      about='checkpoint', can_allow=False, why='There is no optimizer to resume.',
      do='To start a new run from them, use --init')  # fmt: skip
def no_training_state(built: Built) -> Lines:
    if built.cfg.get('resume') and 'optimizer' not in built.checkpoint.content:
        yield '--resume', f'{built.checkpoint.source} has only weights, not the state of a training run'


@rule('averaged-weights', 'error', 'the weights of the checkpoint are an average, and this run has none',
      on='checkpoint', about='checkpoint',
      why='Training would continue from the average instead of the trained weights.',
      do='Add --ema, or start a new run with --init')  # fmt: skip
def averaged_weights(built: Built) -> Lines:
    from mmengine.hooks import EMAHook

    averages = any(isinstance(hook, EMAHook) for hook in built.hooks)
    if built.cfg.get('resume') and 'ema_state_dict' in built.checkpoint.content and not averages:
        yield '--resume', f'the weights in {built.checkpoint.source} are an average, and this run has none'


@rule('partial-weights', 'error', 'the checkpoint lacks most tensors of the backbone', on='checkpoint',
      about='checkpoint', why='mmengine leaves out what does not fit, and most of the backbone would stay random.',
      do='Use weights of this backbone')  # fmt: skip
def partial_weights(built: Built) -> Lines:
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
