"""Initial weights of a training run: `--init`."""

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from tokennorm.checkpoints.finding import PACKAGED
from tokennorm.checkpoints.reading import read_state_dict
from tokennorm.published import published_detector

# Entries of a backbone that decide which weights fit it.
_NORM_AND_STEM = tuple(f'model.backbone.{key}' for key in ('token_norm_cfg', 'stem_cfg'))


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
            raise ValueError('--init imagenet: this config names no weights of its backbone (model.backbone.init_cfg)')
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
