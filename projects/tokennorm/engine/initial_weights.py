"""Initial weights of a training run: `--init`."""

from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from tokennorm.checkpoints.packaged import PACKAGED
from tokennorm.checkpoints.reading import read_state_dict
from tokennorm.published import published_detector


def use_initial_weights(cfg: Config, init: str | Path | None, own_data: bool) -> list[str]:
    """Sets `load_from` and the backbone's `init_cfg`, and returns what training starts from in one line.

    Args:
        cfg: The config, changed in place.
        init: 'coco', 'imagenet', 'none', or a file, a URL or a work directory; None is the default.
        own_data: Whether the data are not those of the config. Then the default is 'coco' where it exists.

    Raises:
        ValueError: if the config has no such weights.
        FileNotFoundError, ConnectionError: if a file cannot be found or fetched.
    """
    backbone = cfg.model.get('backbone') or {}
    init_cfg = backbone.get('init_cfg')
    weights = init_cfg.get('checkpoint') if isinstance(init_cfg, Mapping) else None
    published = published_detector(Path(cfg.filename).stem)
    if init is None:
        if not own_data or cfg.get('load_from'):
            return []
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
