"""Configs of the package, resolved and built."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import mmdet.utils
import mmpretrain.utils
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS

from tokennorm.engine.checks import check_feature_maps

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
        model = MODELS.build(deepcopy(cfg.model))
    check_feature_maps(model, cfg.model)
    return model
