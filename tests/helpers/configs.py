"""Configs of the package, resolved and built."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import mmdet.utils
import mmpretrain.utils
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS

from tokennorm.engine.rules import Built
from tokennorm.findings import JUDGEMENTS

ROOT = Path(__file__).resolve().parents[2] / 'configs'


@cache
def resolve(path):
    return Config.fromfile(path)


def flatten(node, name=''):
    """Values by the paths of their keys, joined with dots."""
    if isinstance(node, dict):
        return {
            k: v for key, value in node.items() for k, v in flatten(value, f'{name}.{key}' if name else key).items()
        }
    return {name: node}


def build_model(cfg):
    mmdet.utils.register_all_modules(init_default_scope=False)
    mmpretrain.utils.register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return MODELS.build(deepcopy(cfg.model))


def judged_model(cfg, *but):
    """The model of a config of this package, in which the rules about what was built, `but` these, find no error."""
    built = Built(cfg, splits=(), model=build_model(cfg))
    rules = [(rule, find) for rule, find in JUDGEMENTS['built'] if rule.severity == 'error' and rule.code not in but]
    assert {rule.code: lines for rule, find in rules if (lines := list(find(built)))} == {}
    return built.model


RETINA = dict(
    type='AnchorGenerator',
    octave_base_scale=4,
    scales_per_octave=3,
    ratios=[0.5, 1.0, 2.0],
    strides=[8, 16, 32, 64, 128],
)


def anchors_config(generator=RETINA, scale=(1333, 800)):
    """A config of a detector with anchors, and its pipelines."""
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=scale, keep_ratio=True),
        dict(type='PackDetInputs'),
    ]
    choice = dict(type='RandomChoiceResize', scales=[(1333, 640), (1333, 800)], keep_ratio=True)
    train = [dict(type='LoadImageFromFile'), choice, dict(type='RandomCrop', crop_size=(400, 0.5))]
    return Config(
        dict(
            model=dict(bbox_head=dict(anchor_generator=generator)),
            train_dataloader=dict(dataset=dict(type='RepeatDataset', dataset=dict(pipeline=train))),
            val_dataloader=dict(dataset=dict(pipeline=pipeline)),
            test_dataloader=dict(dataset=dict(pipeline=pipeline)),
        )
    )


def small_config(**more):
    """A config of a detector with what the rules of training read."""
    return Config(
        dict(
            model=dict(type='A', mask_head=dict()),
            default_scope='mmdet',
            train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=60, val_interval=12),
            val_dataloader=dict(dataset=dict(type='CocoDataset')),
            val_evaluator=dict(type='CocoMetric', metric='bbox'),
        )
        | more
    )
