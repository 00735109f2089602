"""Options of a training run: fields, defaults and checks. It imports neither torch nor OpenMMLab.

`cli.arguments.add_training_options` makes the parser of `tokennorm train` from the fields.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tokennorm.base.files import in_home
from tokennorm.base.messages import UserError, did_you_mean, user_errors
from tokennorm.config.paths import config as config_path

_BACKENDS = ('Tensorboard', 'Wandb', 'MLflow', 'ClearML', 'Neptune', 'DVCLive', 'Aim')
LOGGERS = {name.lower(): f'{name}VisBackend' for name in _BACKENDS}  # of mmengine, by the name that pip installs
# --model: configs for boxes and for masks; {} is '', '-dtn', '-local', '-dpn' or '-dtn-dpn', and a CNN has no {}
MODEL_NAMES = {
    'pvt-t': ('retinanet_pvt-t{}_fpn_1x_coco', 'mask-rcnn_pvt-t{}_fpn_1x_coco'),
    'pvt-s': ('retinanet_pvt-s{}_fpn_1x_coco', 'mask-rcnn_pvt-s{}_fpn_1x_coco'),
    'pvtv2-b2': ('retinanet_pvtv2-b2{}_fpn_1x_coco', 'mask-rcnn_pvtv2-b2{}_fpn_1x_coco'),
    'swin-t': ('retinanet_swin-t-p4-w7{}_fpn_1x_coco', 'mask-rcnn_swin-t-p4-w7{}_fpn_1x_coco'),
    'vit-s': ('retinanet_vit-s{}_sfp_1x_coco', 'mask-rcnn_vit-s{}_sfp_1x_coco'),
    'mini': ('retinanet_pvt-mini{}_fpn', 'mask-rcnn_pvt-mini{}_fpn'),
    'trial': ('retinanet_efficientnet-lite0_fpn', 'mask-rcnn_efficientnet-lite0_fpn'),
    'rtmdet-tiny': ('rtmdet_tiny_12e_coco', 'rtmdet-ins_tiny_12e_coco'),
    'rtmdet-s': ('rtmdet_s_12e_coco', 'rtmdet-ins_s_12e_coco'),
    'ssdlite': ('ssdlite_mobilenetv2_12e_coco', 'ssdlite_mobilenetv2_12e_coco'),  # boxes of masks
}


_PATHS = ('config', 'data', 'init', 'resume', 'out')


def option(group: str, text: str, default: Any = None, **argument: Any) -> Any:
    """A field, its group and line in `--help`, and more arguments of `ArgumentParser.add_argument`."""
    return field(default=default, metadata=dict(group=group, help=text, **argument))


def integer(group: str, text: str, least: int, most: int, metavar: str = 'N') -> Any:
    """A field of an integer within limits, or None."""
    return option(group, text, type=int, metavar=metavar, limits=(least, most))


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training run. Values that cannot be right raise `UserError`."""

    config: str | Path | None = option(
        '', 'config file, or a name of `tokennorm configs` or mmdet::FOLDER/NAME; default: chosen for --data', nargs='?'
    )
    data: str | Path | None = option(
        'data',
        'folder, or data.yaml of YOLO, that replaces the data of the config: COCO, YOLO, Pascal VOC or CVAT for a '
        'detector, train/CLASS/*.jpg and val/CLASS/*.jpg for a classifier',
        metavar='DIR',
    )
    image_size: int | None = integer(
        'data', "short side in pixels; default: the config's, less for small images", 32, 2**14, 'S'
    )
    augment: str | None = option('data', 'large-scale jitter, and without masks Mosaic and MixUp', choices=('strong',))
    workers: int | None = integer('data', 'loading processes; default: as in the config, with --data 1 to 4', 0, 1024)
    model: str | None = option(
        'model', 'without a config; default: by hardware and annotations', choices=tuple(MODEL_NAMES)
    )
    norm: str | None = option(
        'model', 'without a config; local: mini only; default: ln, dtn for mini', choices=('ln', 'dtn', 'local')
    )
    stem: str | None = option(
        'model', 'without a config: plain or Dual PatchNorm; default: plain', choices=('plain', 'dpn')
    )
    init: str | Path | None = option(
        'model',
        'coco, imagenet, none, a file or a work directory; default: as in the config; with --data coco if published',
        metavar='WEIGHTS',
    )
    freeze: int | None = integer(
        'model', "do not train the backbone's stem and first N stages; default: as in the config", 0, 1000
    )
    epochs: int | None = integer('schedule', 'number of epochs; a schedule of steps or a cosine follows', 1, 10**6)
    lr: float | None = option(
        'schedule', 'learning rate; default: as in the config, with --data scaled to the batch', type=float
    )
    batch_size: int | None = integer(
        'schedule', 'images per batch and GPU in training; default: as in the config', 1, 2**16
    )
    seed: int | None = integer('schedule', 'seed of all random numbers; default: random', 0, 2**32 - 1)
    ema: bool = option('schedule', 'validate and save a moving average of the weights', False, action='store_true')
    patience: int | None = integer('schedule', 'stop after N validations without a better metric', 1, 10**6)
    auto_scale_lr: bool = option(
        'schedule', 'scale the learning rate to the total batch size', False, action='store_true'
    )
    resume: bool | str | Path = option(
        'schedule',
        'resume from this checkpoint, or without a value from the latest one in the work directory',
        False,
        nargs='?',
        const=True,
        metavar='CHECKPOINT',
    )
    device: str | None = option('hardware', 'cpu, cuda or cuda:N; default: a GPU if there is one')
    amp: bool | str = option(
        'hardware',
        'automatic mixed precision; without a value bf16 where the GPU has it',
        False,
        nargs='?',
        const=True,
        metavar='bf16|fp16',
    )
    launcher: str = option('hardware', 'job launcher', 'none', choices=('none', 'pytorch', 'slurm', 'mpi'))
    out: str | Path | None = option(
        'output',
        'work directory, of logs, checkpoints and reports; default: as in the config, or work_dirs/NAME',
        metavar='DIR',
    )
    checkpoint_interval: int | None = integer(
        'output', 'iterations between two checkpoints; default: as in the config, mostly an epoch', 1, 10**9
    )
    log: Sequence[str] = option(
        'output', f'more loggers, joined by commas: {", ".join(LOGGERS)}', (), type=lambda text: text.split(',')
    )
    allow: Sequence[str] = option(
        'findings',
        'codes of rules to overrule, joined by commas; `tokennorm rules` lists them',
        (),
        type=lambda text: text.split(','),
        metavar='CODE',
    )
    strict: bool = option('findings', 'warnings are errors, for continuous integration', False, action='store_true')
    cfg_options: Mapping[str, Any] | None = None  # entries of the config by the paths of their keys, `a.b.0.c`

    def __post_init__(self) -> None:
        for name, one in self.__dataclass_fields__.items():
            value, choices = getattr(self, name), one.metadata.get('choices')
            if name in _PATHS and isinstance(value, str | Path):
                object.__setattr__(self, name, value := type(value)(in_home(str(value))))
            if 'limits' in one.metadata:
                if isinstance(value, Integral) and not isinstance(value, bool):  # such as numpy's
                    object.__setattr__(self, name, value := int(value))
                check_integer(name, value)
            if choices and value is not None and value not in choices:
                raise UserError(f'--{name} {value}: expected {", ".join(choices)}{did_you_mean(value, choices)}')
        if self.lr is not None and not (isinstance(self.lr, Real) and 0 < self.lr < math.inf):
            raise UserError(f'--lr {self.lr!r} must be above 0 and finite')
        if not isinstance(self.cfg_options or {}, Mapping):
            raise UserError(f"cfg_options={self.cfg_options!r} must be a dict, such as {{'a.b.c': 1}}")
        for name in ('log', 'allow'):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, value := (value,))
            if not isinstance(value, Iterable) or not all(isinstance(one, str) for one in value):
                raise UserError(f'--{name} {value!r:.80} must be a list of names')
        for name in ('ema', 'auto_scale_lr', 'strict'):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f'--{name.replace("_", "-")} {getattr(self, name)!r:.80} must be True or False')
        if not isinstance(self.resume, bool | str | Path):
            raise UserError(f'--resume {self.resume!r:.80} must be True, False or a checkpoint')
        for name in self.log:
            if name not in LOGGERS:
                known = ', '.join(LOGGERS)
                raise UserError(f'--log: no logger {name!r}{did_you_mean(name, LOGGERS)}; there are {known}')
            if find_spec(name) is None:
                raise UserError(f'--log {name}: the package is not installed; run `pip install {name}`')
        if self.device is not None and not re.fullmatch(r'cpu|cuda(:\d+)?', str(self.device)):
            raise UserError(f'--device {self.device}: expected cpu, cuda or cuda:N')
        if self.device is not None and self.launcher != 'none':
            raise UserError('--device: a launcher gives each process its GPU; leave out --device')
        if self.amp not in (False, True, 'bf16', 'fp16'):
            raise UserError(f'--amp {self.amp}: expected one of bf16, fp16')
        if self.config is not None and (self.model or self.norm or self.stem):
            raise UserError('--model, --norm and --stem choose a config; leave them out where one is named')
        if self.config is None and self.data is None:
            raise UserError('a config is needed, or --data DIR, for which one is chosen')
        if self.config is not None:
            check_config(self.config)
        check_data(self.data)
        if isinstance(self.resume, str | Path) and not Path(self.resume).is_file():
            raise UserError(f'--resume: checkpoint {self.resume} not found')


def check_integer(name: str, value: Any) -> None:
    """Raises `UserError` for a value of an option that is not an integer within its limits; None passes."""
    least, most = TrainOptions.__dataclass_fields__[name].metadata['limits']
    if value is not None and not (isinstance(value, int) and value is not True and least <= value <= most):
        is_low = not isinstance(value, int) or value is True or value < least
        bound = f'at least {least}' if is_low else f'at most {most}'
        raise UserError(f'--{name.replace("_", "-")} {value!r} must be an integer of {bound}')


def check_config(name: str | Path) -> None:
    """Raises `UserError` for a config that does not exist."""
    with user_errors(FileNotFoundError):
        config_path(name)


def check_data(data: str | Path | None) -> None:
    """Raises `UserError` for a dataset that does not exist."""
    if data is not None and not (str(data) and os.path.exists(in_home(str(data)))):
        raise UserError(f'data {data} not found; it must be a folder, or the data.yaml of a YOLO dataset')
