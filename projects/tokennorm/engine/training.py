"""`tokennorm.train`: a training run, step by step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.runner import Runner

from tokennorm.checkpoints.finding import best_checkpoint, newest_checkpoint
from tokennorm.config.tree import is_classifier
from tokennorm.engine.distributed import end_together, use_device
from tokennorm.engine.hooks.summary import SummaryHook
from tokennorm.engine.lock import locked_work_dir
from tokennorm.engine.rules import Built, verify
from tokennorm.engine.runner import build_runner, run
from tokennorm.findings import Findings, current, judging
from tokennorm.messages import UserError, did_you_mean
from tokennorm.plan import Plan, Rank
from tokennorm.plan.data import find_detection_data, use_data_folder
from tokennorm.plan.initial_weights import InitialWeights, use_initial_weights
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.recipe import (
    apply_options,
    choose_config,
    find_resumed,
    open_plan,
    use_anchors_of,
)
from tokennorm.plan.schedule import fit_to_training
from tokennorm.plan.trained import note_sizes, use_trained_anchors
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
        **options: The fields of `tokennorm.plan.options.TrainOptions`. They are the options of `tokennorm train`,
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
    if options.device is not None:
        use_device(options.device)
    with judging(Findings(options.allow, options.strict)) as found:
        plan, weights = plan_training(options)
        found.show()
        with locked_work_dir(plan.cfg.work_dir):
            runner = build_runner(plan.cfg, SPLITS, weights.checkpoint)
            runner.register_hook(SummaryHook(*fit_to_training(runner, plan, options)))
            verify('schedule', Built.of(runner, ('train',)))
            run(runner, how_to_continue='--resume continues from the latest.')
    end_together(runner)
    return _result(runner, Path(plan.cfg.work_dir))


def plan_training(options: TrainOptions) -> tuple[Plan, InitialWeights]:
    """Returns the plan of a training run, whose config is whole, and its initial weights."""
    # Recipe: the one that is named, or one that fits the data; with the user's entries.
    config, splits = options.config, None
    if config is None:
        splits = find_detection_data(options.data)
        config, reason = choose_config(splits, options.model, options.norm, options.stem, torch.cuda.is_available())
        print_once(f'Config: {reason}')
    plan = open_plan(config, options.work_dir, options.cfg_options, options.launcher)
    current().allow(plan.cfg.get('allow') or ())  # of a written config

    # Beginning: a run to resume, or initial weights. The directory of another run is refused.
    resumed = find_resumed(plan.cfg, options)
    with plan.step(Rank.OPTION, '--init', show=False):
        weights = use_initial_weights(plan, options)
    if weights.checkpoint is not None and resumed is None:
        use_trained_anchors(plan, weights.checkpoint.dataset_meta)

    # Data: classes, heads, limits, image size, and anchors, which a resumed run keeps.
    if options.data is not None:
        verify('own data', Built(plan.cfg))
        if options.config is None and resumed is not None:
            use_anchors_of(plan, resumed)
        fit_anchors = options.config is None and resumed is None
        use_data_folder(plan, options.data, SPLITS, options.image_size, fit_anchors=fit_anchors, splits=splits)

    # Everything else that options change: the length, augmentation, hooks.
    apply_options(plan, options)
    if not is_classifier(plan.cfg):
        note_sizes(plan, options.data is not None)
    if allowed := sorted(current().allowed):
        plan.cfg.allow = allowed
    if options.resume and resumed is None:
        print_once(f'--resume: no checkpoint in {plan.cfg.work_dir}; training starts from the beginning')
    if options.resume and resumed is not None:
        plan.cfg.resume = 'auto' if options.resume is True else str(options.resume)
    else:
        print_once(*filter(None, [weights.description]))
    return plan, weights


def _result(runner: Runner, work_dir: Path) -> TrainingResult:
    validated = {name[4:]: values for name, values in runner.message_hub.log_scalars.items() if name.startswith('val/')}
    metrics = {name: float(values.current()) for name, values in validated.items() if name not in ('time', 'data_time')}
    return TrainingResult(metrics, best_checkpoint(work_dir) if newest_checkpoint(work_dir) else None, work_dir)
