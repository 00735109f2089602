"""Checks of arguments that read no config and import no torch, so that a mistake ends a command at once."""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokennorm.config_paths import config as config_path
from tokennorm.messages import did_you_mean

LEAST_SIZE = 32  # of an image, in pixels
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


def check_training(
    config: str | Path | None = None,
    data: str | Path | None = None,
    model: str | None = None,
    norm: str | None = None,
    stem: str | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    image_size: int | None = None,
    patience: int | None = None,
    log: Sequence[str] = (),
    workers: int | None = None,
    resume: bool | str | Path = False,
    **others: Any,
) -> None:
    """Checks the arguments of `tokennorm.train` that can be checked without the config."""
    if epochs is not None:
        check_epochs(epochs)
    if lr is not None and not 0 < lr < math.inf:
        raise ValueError(f'--lr {lr} must be above 0' + (' and finite' if lr > 0 else ''))
    check_image_size(image_size)
    if patience is not None and patience < 1:
        raise ValueError(f'--patience {patience} must be at least 1')
    if workers is not None and workers < 0:
        raise ValueError(f'--workers {workers} must be at least 0')
    check_loggers(log)
    choices = (('model', model, MODEL_NAMES), ('norm', norm, NORMS), ('stem', stem, STEMS))
    for name, value, known in choices:
        if value is not None and value not in known:
            raise ValueError(f'--{name} {value}: expected {", ".join(known)}{did_you_mean(value, known)}')
    if config is not None and (model or norm or stem):
        raise ValueError('--model, --norm and --stem choose a config; leave them out where one is named')
    if config is None and data is None:
        raise ValueError('a config is needed, or --data DIR, for which one is chosen')
    if config is not None:
        config_path(config)
    check_data(data)
    if isinstance(resume, str | Path) and not Path(resume).is_file():
        raise FileNotFoundError(f'--resume: checkpoint {resume} not found')


def check_epochs(epochs: Any) -> None:
    """Raises `ValueError` for a number of epochs that is not an integer of at least 1."""
    if not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f'--epochs (train_cfg.max_epochs) {epochs} must be an integer of at least 1')


def check_image_size(size: int | None) -> None:
    """Raises `ValueError` for a size below 32."""
    if size is not None and size < LEAST_SIZE:
        raise ValueError(f'--image-size {size} must be at least {LEAST_SIZE} pixels')


def check_loggers(names: Sequence[str]) -> None:
    """Checks the names of loggers, which are keys of `LOGGERS`."""
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f'--log: no logger {name!r}{did_you_mean(name, LOGGERS)}; there are {", ".join(LOGGERS)}')
        if find_spec(name) is None:
            raise ImportError(f'--log {name}: the package is not installed; run `pip install {name}`')


def check_data(data: str | Path | None) -> None:
    """Raises `FileNotFoundError` for a dataset that does not exist."""
    if data is not None and not (str(data) and Path(data).expanduser().exists()):
        raise FileNotFoundError(f'data {data} not found; it must be a folder, or the data.yaml of a YOLO dataset')
