"""Checks of arguments that read no config and import no torch, so that a mistake ends a command at once."""

import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokennorm.config.paths import config as config_path
from tokennorm.messages import UserError, did_you_mean

LEAST = dict(epochs=1, image_size=32, patience=1, workers=0)  # of arguments that are integers
_BACKENDS = ('Tensorboard', 'Wandb', 'MLflow', 'ClearML', 'Neptune', 'DVCLive', 'Aim')
LOGGERS = {name.lower(): f'{name}VisBackend' for name in _BACKENDS}  # of mmengine, by the name that pip installs
MODEL_NAMES = {  # --model: configs for boxes and for masks; {} is '', '-dtn', '-local', '-dpn' or '-dtn-dpn'
    'pvt-t': ('retinanet_pvt-t{}_fpn_1x_coco', 'mask-rcnn_pvt-t{}_fpn_1x_coco'),
    'pvt-s': ('retinanet_pvt-s{}_fpn_1x_coco', 'mask-rcnn_pvt-s{}_fpn_1x_coco'),
    'pvtv2-b2': ('retinanet_pvtv2-b2{}_fpn_1x_coco', 'mask-rcnn_pvtv2-b2{}_fpn_1x_coco'),
    'swin-t': ('retinanet_swin-t-p4-w7{}_fpn_1x_coco', 'mask-rcnn_swin-t-p4-w7{}_fpn_1x_coco'),
    'vit-s': ('retinanet_vit-s{}_sfp_1x_coco', 'mask-rcnn_vit-s{}_sfp_1x_coco'),
    'mini': ('retinanet_pvt-mini{}_fpn', 'mask-rcnn_pvt-mini{}_fpn'),
    'trial': ('retinanet_efficientnet-lite0_fpn', 'mask-rcnn_efficientnet-lite0_fpn'),
}
NORMS, STEMS = ('ln', 'dtn', 'local'), ('plain', 'dpn')


def check_training(arguments: Mapping[str, Any]) -> None:
    """Checks the arguments of `tokennorm.train` that can be checked without the config."""
    for name in LEAST:
        check_integer(name, arguments[name])
    lr, config, resume = (arguments[name] for name in ('lr', 'config', 'resume'))
    if lr is not None and not 0 < lr < math.inf:
        raise ValueError(f'--lr {lr} must be above 0 and finite')
    for name in arguments['log']:
        if name not in LOGGERS:
            raise ValueError(f'--log: no logger {name!r}{did_you_mean(name, LOGGERS)}; there are {", ".join(LOGGERS)}')
        if find_spec(name) is None:
            raise ImportError(f'--log {name}: the package is not installed; run `pip install {name}`')
    for name, known in (('model', MODEL_NAMES), ('norm', NORMS), ('stem', STEMS), ('augment', ('strong',))):
        value = arguments[name]
        if value is not None and value not in known:
            raise ValueError(f'--{name} {value}: expected {", ".join(known)}{did_you_mean(value, known)}')
    if config is not None and any(arguments[name] for name in ('model', 'norm', 'stem')):
        raise ValueError('--model, --norm and --stem choose a config; leave them out where one is named')
    if config is None and arguments['data'] is None:
        raise ValueError('a config is needed, or --data DIR, for which one is chosen')
    if config is not None:
        config_path(config)
    check_data(arguments['data'])
    if isinstance(resume, str | Path) and not Path(resume).is_file():
        raise FileNotFoundError(f'--resume: checkpoint {resume} not found')


def check_integer(name: str, value: Any) -> None:
    """Raises `ValueError` for a value of an argument that is not an integer of at least `LEAST[name]`; None passes."""
    if value is not None and not (isinstance(value, int) and value >= LEAST[name]):
        raise ValueError(f'--{name.replace("_", "-")} {value} must be an integer of at least {LEAST[name]}')


def check_data(data: str | Path | None) -> None:
    """Raises `UserError` for a dataset that does not exist."""
    if data is not None and not (str(data) and Path(data).expanduser().exists()):
        raise UserError(f'data {data} not found; it must be a folder, or the data.yaml of a YOLO dataset')
