"""`tokennorm.train`: trains a detector or a classifier."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from tokennorm.base.messages import UserError, did_you_mean, in_python
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.result import Result
from tokennorm.plan.options import TrainOptions


@dataclass(frozen=True)
class TrainingResult(Result):
    """Result of a training run."""

    metrics: Mapping[str, float]  #: of the last validation by name, such as `coco/bbox_mAP`, from 0 to 1 as in mmdet
    checkpoint: Path | None  #: the best one; the latest where the config selects none; None where none was written
    work_dir: Path  #: directory of checkpoints, logs and the report


@in_python
def train(config: str | Path | None = None, data: str | Path | None = None, **options: Any) -> TrainingResult:
    """Trains a detector or a classifier, as `tokennorm train` does.

    >>> import tokennorm
    >>> result = tokennorm.train('retinanet_pvt-mini-dtn_fpn_bccd', data='my_data', epochs=20, out='mine')
    >>> result.metrics['coco/bbox_mAP'], result.checkpoint
    (0.52, PosixPath('mine/best_coco_bbox_mAP_epoch_20.pth'))

    Args:
        config: Config file, or the name of a config (`tokennorm.config`). None chooses one for `data`, by `model`,
            `norm`, `stem`, the hardware and the annotations.
        data: Folder that replaces the data of the config: COCO, YOLO or Pascal VOC for a detector, folders of classes
            for a classifier. With it the learning rate follows the total batch, the warm-up is short, training
            validates at least ten times (a short one after every epoch), and images are not enlarged more than twofold.
        **options: The options of `tokennorm train`, with `_` for `-`. `resume` and `amp` may be True, `log` and `allow`
            are lists, and `cfg_options` maps paths of keys, `a.b.0.c`, to values. `work_dir` is another name of `out`.

    Raises:
        UserError: for whatever ends `tokennorm train` with an error.
        KeyboardInterrupt: with the place of the checkpoints and how to continue.
    """
    known = TrainOptions.__dataclass_fields__
    if 'work_dir' in options:
        if options.get('out') is not None:
            raise UserError('out and work_dir are the same option: leave out work_dir')
        options['out'] = options.pop('work_dir')
    if unknown := [name for name in options if name not in known]:
        raise UserError(f'train has no argument {unknown[0]}{did_you_mean(unknown[0], known)}')
    return train_with(TrainOptions(config, data, **options))


_OPTIONS = [
    Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
    for one in fields(TrainOptions)[2:]
]
_SIGNATURE = signature(train)
train.__signature__ = _SIGNATURE.replace(  # type: ignore[attr-defined]  # shown by help() and by notebooks
    parameters=[*list(_SIGNATURE.parameters.values())[:2], *_OPTIONS]
)


def train_with(options: TrainOptions) -> TrainingResult:
    """Trains with checked options."""
    import_openmmlab()
    from tokennorm.checkpoints.locating import best_checkpoint, newest_checkpoint
    from tokennorm.engine.training import run_training

    runner, work_dir = run_training(options)
    validated = {name[4:]: values for name, values in runner.message_hub.log_scalars.items() if name.startswith('val/')}
    metrics = {name: float(values.current()) for name, values in validated.items() if name not in ('time', 'data_time')}
    return TrainingResult(metrics, best_checkpoint(work_dir) if newest_checkpoint(work_dir) else None, work_dir)
