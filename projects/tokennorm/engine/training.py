"""`tokennorm.train`: a training run, step by step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.runner import Runner

from tokennorm.checkpoints.finding import best_checkpoint, newest_checkpoint
from tokennorm.config.image_size import use_trained_anchors
from tokennorm.config.reading import merge_options
from tokennorm.config.tree import is_classifier
from tokennorm.engine.augmentation import describe_flips
from tokennorm.engine.checks import check_training_samples
from tokennorm.engine.data import find_detection_data, note_sizes, use_data_folder
from tokennorm.engine.distributed import end_together, use_device
from tokennorm.engine.initial_weights import use_initial_weights
from tokennorm.engine.lock import locked_work_dir
from tokennorm.engine.options import TrainOptions
from tokennorm.engine.recipe import (
    apply_options,
    choose_config,
    find_resumed,
    open_config,
    use_anchors_of,
    use_average_of,
)
from tokennorm.engine.runner import build_runner, fit_schedule_and_lr, run
from tokennorm.engine.schedule import batch_of_lr
from tokennorm.messages import UserError, did_you_mean
from tokennorm.ranks import print_once

SPLITS = ('train', 'val')


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run."""

    metrics: dict[str, float]  #: of the last validation by name, such as `coco/bbox_mAP`, from 0 to 1 as in mmdet
    checkpoint: Path | None  #: the best one; the latest where the config selects none; None where none was written
    work_dir: Path  #: directory of checkpoints, logs and the report


def train(config: str | Path | None = None, data: str | Path | None = None, **options: Any) -> TrainingResult:
    """Trains a detector or a classifier, as `tokennorm train` does.

    >>> import tokennorm
    >>> result = tokennorm.train('retinanet_pvt-mini-dtn_fpn_bccd', data='my_data', epochs=20, work_dir='mine')
    >>> result.metrics['coco/bbox_mAP'], result.checkpoint
    (0.52, PosixPath('mine/best_coco_bbox_mAP_epoch_20.pth'))

    Args:
        config: Config file, or the name of a config (`tokennorm.config`). None chooses one for `data`, by `model`,
            `norm`, `stem`, the hardware and the annotations.
        data: Folder that replaces the data of the config: COCO, YOLO or Pascal VOC for a detector, folders of classes
            for a classifier. With it the learning rate follows the total batch, the warm-up is short, training
            validates at least ten times (a short one after every epoch), and images are not enlarged more than twofold.
        **options: The fields of `tokennorm.engine.options.TrainOptions`. They are the options of `tokennorm train`,
            with `_` for `-`. `resume` and `amp` may be True, `log` is a list, and `cfg_options` maps paths of keys,
            `a.b.0.c`, to values.

    Raises:
        UserError: for whatever ends `tokennorm train` with an error.
        KeyboardInterrupt: with the place of the checkpoints and how to continue.
    """
    known = TrainOptions.__dataclass_fields__
    if unknown := [name for name in options if name not in known]:
        raise UserError(f'train has no argument {unknown[0]}{did_you_mean(unknown[0], known)}')
    return train_with(TrainOptions(config, data, **options))


def train_with(options: TrainOptions) -> TrainingResult:
    """Trains with checked options."""
    # Config: the one that is named, or one that fits the data.
    if options.device is not None:
        use_device(options.device)
    config, splits = options.config, None
    if config is None:
        splits = find_detection_data(options.data)
        config, reason = choose_config(splits, options.model, options.norm, options.stem, torch.cuda.is_available())
        print_once(f'Config: {reason}')
    cfg = open_config(config, options.work_dir, options.cfg_options, options.launcher)

    # Beginning: a run to resume, or initial weights. The directory of another run is refused.
    resumed = find_resumed(cfg, options)
    weights = use_initial_weights(cfg, options)
    if weights.checkpoint is not None and resumed is None:
        print_once(*use_trained_anchors(cfg, weights.checkpoint.dataset_meta, options.cfg_options))

    # Data: classes, heads, limits, image size, and anchors, which a resumed run keeps.
    if options.data is not None:
        if options.config is None and resumed is not None:
            use_anchors_of(cfg, resumed)
        fit_anchors = options.config is None and resumed is None and not options.sets('load_from')
        use_data_folder(cfg, options.data, SPLITS, options.image_size, fit_anchors=fit_anchors, splits=splits)

    # Everything else that options change: the schedule, augmentation, hooks, and `--cfg-options`.
    of_user = {key: one for key, one in (options.cfg_options or {}).items() if key.startswith('auto_scale_lr')}
    merge_options(cfg, of_user)
    base_batch, made_for = batch_of_lr(cfg), dict(cfg.get('train_cfg') or {})
    apply_options(cfg, options)
    if not is_classifier(cfg):
        note_sizes(cfg, options.data is not None)
        print_once(*describe_flips(cfg))
    if resumed is not None and not options.sets('custom_hooks'):
        print_once(*use_average_of(cfg, resumed))
    if options.resume and resumed is None:
        print_once(f'--resume: no checkpoint in {cfg.work_dir}; training starts from the beginning')
    if options.resume and resumed is not None:
        cfg.resume = 'auto' if options.resume is True else str(options.resume)
    else:
        print_once(*filter(None, [weights.description]))

    with locked_work_dir(cfg.work_dir):
        runner = build_runner(cfg, SPLITS, weights.checkpoint)
        check_training_samples(runner.train_dataloader.dataset)
        fit_schedule_and_lr(runner, options, base_batch, made_for)
        run(runner, how_to_continue='--resume continues from the latest.')
    end_together(runner)
    return _result(runner, Path(cfg.work_dir))


def _result(runner: Runner, work_dir: Path) -> TrainingResult:
    validated = {name[4:]: values for name, values in runner.message_hub.log_scalars.items() if name.startswith('val/')}
    metrics = {name: float(values.current()) for name, values in validated.items() if name not in ('time', 'data_time')}
    return TrainingResult(metrics, best_checkpoint(work_dir) if newest_checkpoint(work_dir) else None, work_dir)
