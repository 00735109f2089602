"""Options of a training run: fields, defaults and checks. It imports neither torch nor OpenMMLab.

`cli.arguments.add_options` makes the parser of `tokennorm train` from the fields.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokennorm.config.paths import config as config_path
from tokennorm.messages import UserError, did_you_mean

LIMITS = dict(  # of options that are integers: the least and the most
    epochs=(1, 10**6),
    image_size=(32, 2**14),
    batch_size=(1, 2**16),
    patience=(1, 10**6),
    workers=(0, 1024),
    freeze=(0, 1000),
    seed=(0, 2**32 - 1),
)
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


def option(default: Any, text: str, group: str = '', **argument: Any) -> Any:
    """A field, its line and group in `--help`, and more arguments of `ArgumentParser.add_argument`."""
    return field(default=default, metadata=dict(group=group, help=text, **argument))


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training run. Values that cannot be right raise `UserError`."""

    config: str | Path | None = option(
        None,
        'config file, or a name of `tokennorm configs` or mmdet::FOLDER/NAME; default: chosen for --data',
        positional=True,
        nargs='?',
    )
    data: str | Path | None = option(
        None,
        'folder, or data.yaml of YOLO, that replaces the data of the config: COCO, YOLO or Pascal VOC for a detector, '
        'train/CLASS/*.jpg and val/CLASS/*.jpg for a classifier',
        'data',
        metavar='DIR',
    )
    model: str | None = option(
        None, 'without a config; default: by hardware and annotations', 'model', choices=tuple(MODEL_NAMES)
    )
    norm: str | None = option(
        None,
        'without a config; local: mini only; default: ln, dtn for mini',
        'model',
        choices=('ln', 'dtn', 'local'),
    )
    stem: str | None = option(
        None, 'without a config: plain or Dual PatchNorm; default: plain', 'model', choices=('plain', 'dpn')
    )
    init: str | Path | None = option(
        None,
        'coco, imagenet, none, a file or a work directory; default: as in the config; with --data coco if published',
        'model',
        metavar='WEIGHTS',
    )
    epochs: int | None = option(None, 'number of epochs; the schedule is rescaled', 'schedule', type=int, metavar='N')
    lr: float | None = option(
        None, 'learning rate; default: as in the config, with --data scaled to the batch', 'schedule', type=float
    )
    image_size: int | None = option(
        None, "short side in pixels; default: the config's, less for small images", 'data', type=int, metavar='S'
    )
    augment: str | None = option(
        None, 'large-scale jitter, and without masks Mosaic and MixUp', 'data', choices=('strong',)
    )
    workers: int | None = option(
        None, 'data loading processes; default: as in the config, with --data 1 to 4', 'data', type=int, metavar='N'
    )
    batch_size: int | None = option(
        None, 'images per batch and GPU in training; default: as in the config', 'schedule', type=int, metavar='N'
    )
    freeze: int | None = option(
        None,
        "do not train the backbone's stem and first N stages; default: as in the config",
        'model',
        type=int,
        metavar='N',
    )
    seed: int | None = option(None, 'seed of all random numbers; default: random', 'schedule', type=int, metavar='N')
    device: str | None = option(None, 'cpu, cuda or cuda:N; default: a GPU if there is one', 'hardware')
    ema: bool = option(False, 'validate and save a moving average of the weights', 'schedule', action='store_true')
    patience: int | None = option(
        None, 'stop after N validations without a better metric', 'schedule', type=int, metavar='N'
    )
    auto_scale_lr: bool = option(
        False, 'scale the learning rate to the total batch size', 'schedule', action='store_true'
    )
    resume: bool | str | Path = option(
        False,
        'resume from this checkpoint, or without a value from the latest one in the work directory',
        'schedule',
        nargs='?',
        const=True,
        metavar='CHECKPOINT',
    )
    amp: bool | str = option(
        False,
        'automatic mixed precision; without a value bf16 where the GPU has it',
        'hardware',
        nargs='?',
        const=True,
        metavar='bf16|fp16',
    )
    launcher: str = option('none', 'job launcher', 'hardware', choices=('none', 'pytorch', 'slurm', 'mpi'))
    work_dir: str | Path | None = option(
        None, 'directory of logs, checkpoints and reports; default: as in the config, or work_dirs/NAME', 'output'
    )
    log: Sequence[str] = option(
        (),
        'additional loggers, joined by commas: tensorboard, wandb, mlflow, clearml, neptune, dvclive, aim',
        'output',
        type=lambda text: text.split(','),
        metavar='NAMES',
    )
    cfg_options: Mapping[str, Any] | None = None  # entries of the config by the paths of their keys, `a.b.0.c`

    def __post_init__(self) -> None:
        for name in LIMITS:
            check_integer(name, getattr(self, name))
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise UserError(f'--lr {self.lr} must be above 0 and finite')
        for name in self.log:
            if name not in LOGGERS:
                known = ', '.join(LOGGERS)
                raise UserError(f'--log: no logger {name!r}{did_you_mean(name, LOGGERS)}; there are {known}')
            if find_spec(name) is None:
                raise UserError(f'--log {name}: the package is not installed; run `pip install {name}`')
        for name in ('model', 'norm', 'stem', 'augment'):
            value, known = getattr(self, name), self.__dataclass_fields__[name].metadata['choices']
            if value is not None and value not in known:
                raise UserError(f'--{name} {value}: expected {", ".join(known)}{did_you_mean(value, known)}')
        if self.device is not None and not re.fullmatch(r'cpu|cuda(:\d+)?', self.device):
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

    def sets(self, *keys: str) -> bool:
        """Returns whether `cfg_options` set an entry of the config that begins with one of these keys."""
        return any(path.startswith(keys) for path in self.cfg_options or ())


def check_integer(name: str, value: Any) -> None:
    """Raises `UserError` for a value of an option that is not an integer within `LIMITS[name]`; None passes."""
    least, most = LIMITS[name]
    if value is not None and not (isinstance(value, int) and value is not True and least <= value <= most):
        bound = f'at least {least}' if not isinstance(value, int) or value < least else f'at most {most}'
        raise UserError(f'--{name.replace("_", "-")} {value} must be an integer of {bound}')


def check_config(name: str | Path) -> None:
    """Raises `UserError` for a config that does not exist."""
    try:
        config_path(name)
    except FileNotFoundError as error:
        raise UserError(str(error)) from None


def check_data(data: str | Path | None) -> None:
    """Raises `UserError` for a dataset that does not exist."""
    if data is not None and not (str(data) and Path(data).expanduser().exists()):
        raise UserError(f'data {data} not found; it must be a folder, or the data.yaml of a YOLO dataset')
