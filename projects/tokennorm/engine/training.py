"""`tokennorm.train`: a training run as a Python function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner

from tokennorm.argument_checks import check_integer, check_training
from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.finding import best_checkpoint, newest_checkpoint
from tokennorm.config.build_errors import build_errors
from tokennorm.config.image_size import set_image_size
from tokennorm.engine import settings
from tokennorm.engine.build import build_runner
from tokennorm.engine.config import choose_config, merge, open_config
from tokennorm.engine.data import use_data_folder
from tokennorm.engine.errors import DataError, NonFiniteError
from tokennorm.engine.mixed_precision import use_mixed_precision
from tokennorm.engine.schedule import accumulated, fit_lr, fit_schedule
from tokennorm.engine.summary import SummaryHook, log_often
from tokennorm.files import locked_work_dir
from tokennorm.messages import UserError, print_once, user_errors

WEIGHT_OPTIONS = ('load_from', 'model.backbone.init_cfg')  # of `--cfg-options`: they replace the default of `--init`


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run."""

    metrics: dict[str, float]  #: of the last validation by name, such as `coco/bbox_mAP`
    checkpoint: Path | None  #: the best one; the latest where the config selects none; None where none was written
    work_dir: Path  #: directory of checkpoints, logs and the report


def train(
    config: str | Path | None = None,
    data: str | Path | None = None,
    *,
    model: str | None = None,
    norm: str | None = None,
    stem: str | None = None,
    init: str | Path | None = None,
    work_dir: str | Path | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    image_size: int | None = None,
    augment: str | None = None,
    ema: bool = False,
    patience: int | None = None,
    log: Sequence[str] = (),
    workers: int | None = None,
    resume: bool | str | Path = False,
    amp: bool | str = False,
    auto_scale_lr: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
    launcher: str = 'none',
) -> TrainingResult:
    """Trains a detector or a classifier, as `tokennorm train` does.

    >>> import tokennorm
    >>> result = tokennorm.train('retinanet_pvt-mini-dtn_fpn_bccd', data='my_data', epochs=20, work_dir='mine')
    >>> result.metrics['coco/bbox_mAP'], result.checkpoint
    (0.52, PosixPath('mine/best_coco_bbox_mAP_epoch_20.pth'))

    Args:
        config: Config file, or the name of a config (`tokennorm.config`). None chooses one for `data`, by `model`,
            `norm`, `stem`, the hardware and the annotations.
        data: Folder that replaces the data of the config: COCO, YOLO or Pascal VOC for a detector, folders of classes
            for a classifier. With it the learning rate follows the total batch, the
            warm-up is short, training validates at least ten times, and images are not enlarged more than twofold.
        model: A key of `argument_checks.MODEL_NAMES`, where no config is named.
        norm: 'ln', 'dtn', or 'local' (PVT-mini only), where no config is named; default: 'dtn' for PVT-mini, 'ln' for
            the other models.
        stem: 'plain' (default) or 'dpn', where no config is named.
        init: Initial weights: 'coco' is mmdet's published detector, 'imagenet' the backbone that the config names,
            'none' a random initialization; or a file, a URL or a work directory, of a detector or of a backbone. With
            `data`, None is 'coco' where such a detector exists; otherwise it is what the config or `cfg_options` name.
        work_dir: Directory of logs and checkpoints; by default that of the config, or `work_dirs/NAME`. It must have no
            checkpoints, except to resume.
        epochs: Length of training; every schedule follows it.
        lr: Learning rate.
        image_size: Short side that images are resized to in training and testing, in pixels.
        augment: 'strong' for Mosaic, large-scale jitter and MixUp.
        ema: Average the weights over training, and validate and save the averages.
        patience: Stop after so many validations without a better metric.
        log: Names of `LOGGERS` to log to, besides the files in `work_dir`.
        workers: Processes that load data.
        resume: A checkpoint to resume from; True for the latest one in the work directory.
        amp: Automatic mixed precision: 'bf16', 'fp16', or True for bf16 where the GPU has it.
        auto_scale_lr: Scale the learning rate from the config's `auto_scale_lr.base_batch_size`, as mmengine does.
        cfg_options: Entries of the config by the paths of their keys, `a.b.0.c`. They take precedence over the other
            arguments.
        launcher: Of a distributed run: none, pytorch, slurm or mpi.

    Raises:
        UserError: for whatever ends `tokennorm train` with an error.
        KeyboardInterrupt: with the place of the checkpoints and how to continue.
    """
    with user_errors(ImportError, OSError, ValueError):
        check_training(locals())
        options = dict(cfg_options or {})
        own_data, is_chosen = data is not None, config is None
        if config is None:
            config, reason = choose_config(str(data), model, norm, stem, torch.cuda.is_available())
            print_once(f'Config: {reason}')
    cfg = open_config(config, work_dir, options, launcher)
    latest = newest_checkpoint(Path(cfg.work_dir))
    if latest is not None and not (resume or options.get('resume', cfg.get('resume'))):
        raise UserError(  # this run would overwrite them one by one
            f'{cfg.work_dir} has checkpoints of an earlier training run, the latest of which is {latest.name}. '
            '--resume continues it; otherwise choose another --work-dir, or delete this directory'
        )
    initial_weights: list[str] = []
    if init is not None or not any(key.startswith(WEIGHT_OPTIONS) for key in options):
        with user_errors(CheckpointError, OSError, ValueError):
            initial_weights = settings.use_initial_weights(cfg, init, own_data, options)
    if own_data:  # reading it may take a minute
        resumes = latest is not None or isinstance(resume, str | Path)
        fit_anchors = is_chosen and not resumes and 'load_from' not in options
        use_data_folder(cfg, str(data), ('train', 'val'), image_size, fit_anchors=fit_anchors)
        if is_chosen and resumes:
            keep_anchors(cfg, Path(resume).parent if isinstance(resume, str | Path) else Path(cfg.work_dir))
    # Total batch that the config's learning rate is for.
    base_batch = (cfg.get('auto_scale_lr') or {}).get('base_batch_size', 0) * accumulated(cfg)
    if auto_scale_lr and not base_batch:
        raise UserError(f'--auto-scale-lr: {config} has no auto_scale_lr.base_batch_size to scale from')
    with user_errors(ValueError):
        if epochs is not None:
            settings.set_epochs(cfg, epochs)
        if image_size is not None and not own_data:
            print_once(*set_image_size(cfg, image_size))
        if augment is not None:
            print_once(settings.augment_strongly(cfg))
        if workers is not None or own_data:
            settings.set_workers(cfg, workers)
        if ema:
            settings.average_weights(cfg)
        if patience is not None:
            settings.stop_early(cfg, patience)
        settings.log_to(cfg, log)
        merge(cfg, options)
        check_integer('epochs', (cfg.get('train_cfg') or {}).get('max_epochs'))
        if own_data:
            print_once(*settings.validate_often(cfg))
        settings.keep_the_best(cfg)
        if amp:
            use_mixed_precision(cfg, amp)
    if auto_scale_lr:
        cfg.auto_scale_lr.enable = True
    if resume is True and latest is None:
        print_once(f'--resume: no checkpoint in {cfg.work_dir}; training starts from the beginning')
        resume = False
    if resume:
        cfg.resume = 'auto' if resume is True else str(resume)
    else:
        print_once(*initial_weights)
    with locked_work_dir(cfg.work_dir):
        runner = build_runner(cfg, splits=('train', 'val'))
        _fit_schedule_and_lr(runner, own_data, lr, auto_scale_lr, options, base_batch)
        run(runner, how_to_continue='--resume continues from the latest.')
    folder = Path(cfg.work_dir)
    validated = {name[4:]: values for name, values in runner.message_hub.log_scalars.items() if name.startswith('val/')}
    metrics = {name: float(values.current()) for name, values in validated.items() if name not in ('time', 'data_time')}
    return TrainingResult(metrics, best_checkpoint(folder) if newest_checkpoint(folder) else None, folder)


def _fit_schedule_and_lr(
    runner: Runner, own_data: bool, lr: float | None, auto_scale_lr: bool, options: Mapping[str, Any], base_batch: int
) -> None:
    """Fits schedule, log lines and learning rate to the length of training and the total batch; shows them."""
    by_options = any(key.startswith('param_scheduler') for key in options)
    with build_errors():  # the training loop and its data are built here
        schedule = fit_schedule(runner, stretch=not by_options, short_warm_up=own_data)
    if own_data and not any(key.startswith('default_hooks.logger') for key in options):
        log_often(runner)
    by_batch = own_data and not auto_scale_lr and 'optim_wrapper.optimizer.lr' not in options
    rate = fit_lr(runner, lr, base_batch if by_batch else 0)
    runner.register_hook(SummaryHook(schedule, f'{rate}; before --auto-scale-lr' if rate and auto_scale_lr else rate))


def run(runner: Runner, how_to_continue: str) -> None:
    """Runs training. Errors of the user and an interruption say where the checkpoints are and how to continue."""
    try:
        with build_errors():
            runner.train()
    except (CheckpointError, FileNotFoundError, ConnectionError) as error:
        ways = 'train them with the config of their name in configs/imagenet, or use --init FILE or --init none'
        raise UserError(f'{error}. Initial weights: {ways}') from None
    except (DataError, NonFiniteError) as error:
        raise UserError(f'{error}') from None
    except OSError as error:  # such as a full disk
        raise UserError(f'{error}. Checkpoints so far are in {runner.work_dir}; {how_to_continue}') from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f'Interrupted. Checkpoints so far are in {runner.work_dir}; {how_to_continue}'
        ) from None


def keep_anchors(cfg: Config, folder: Path) -> None:
    """Sets the anchors of the run to resume, which may be fitted to its data, by the config in its directory."""
    file = folder / Path(cfg.filename).name
    model = Config.fromfile(file).model if file.is_file() else {}
    for head in ('bbox_head', 'rpn_head'):
        if 'anchor_generator' in (model.get(head) or {}):
            cfg.model[head].anchor_generator = model[head].anchor_generator
