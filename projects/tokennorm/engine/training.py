"""`tokennorm.train`: a training run as a Python function."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

from tokennorm.checkpoints.reading import noted_checkpoint
from tokennorm.engine.argument_checks import check_epochs, check_training
from tokennorm.engine.distributed import print_once
from tokennorm.engine.image_size import set_image_size
from tokennorm.engine.runner import settings
from tokennorm.engine.runner.augment import augment_strongly
from tokennorm.engine.runner.build import build_runner
from tokennorm.engine.runner.build_errors import build_errors
from tokennorm.engine.runner.config import load_config
from tokennorm.engine.runner.fit import accumulated, fit_lr, fit_schedule
from tokennorm.engine.runner.run import train as run_training
from tokennorm.engine.runner.summary import SummaryHook
from tokennorm.messages import exit_on


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run.

    Attributes:
        metrics: Those of the last validation by name, such as `coco/bbox_mAP`.
        checkpoint: The best checkpoint; the latest one where the config selects none; None where none was written.
        work_dir: Directory of checkpoints, logs and the report.
    """

    metrics: dict[str, float]
    checkpoint: Path | None
    work_dir: Path


def train(config: str | Path, data: str | Path | None = None, **settings: Any) -> TrainingResult:
    """Trains a detector or a classifier, as `tokennorm train` does.

    >>> import tokennorm
    >>> result = tokennorm.train('retinanet_pvt-mini-dtn_fpn_bccd', data='my_data', epochs=20, work_dir='mine')
    >>> result.metrics['coco/bbox_mAP'], result.checkpoint
    (0.52, PosixPath('mine/best_coco_bbox_mAP_epoch_20.pth'))

    Args:
        config: Config file, or the name of a config (`tokennorm.config`).
        data: Folder that replaces the data of the config: COCO format for a detector, folders of classes for a
            classifier.
        settings: The arguments of `run`, which are those of `tokennorm train` with underscores.

    Raises:
        RuntimeError: with one line, for whatever ends `tokennorm train` with an error.
    """
    try:
        return run(config, data, **settings)
    except SystemExit as ended:
        raise RuntimeError(str(ended.code).removeprefix('error: ')) from ended


def run(
    config: str | Path,
    data: str | Path | None = None,
    *,
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
    amp: bool = False,
    auto_scale_lr: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
    launcher: str = 'none',
    local_rank: int = 0,
) -> TrainingResult:
    """Trains. Errors of the user end with `SystemExit` and one line.

    Args:
        config: Config file, or the name of a config.
        data: Folder that replaces the data of the config. With it the learning rate follows the total batch, the
            warm-up is short, training validates at least ten times, and images are not enlarged more than twofold.
        work_dir: Directory of logs and checkpoints; by default that of the config, or `work_dirs/NAME`.
        epochs: Length of training; every schedule follows it.
        lr: Learning rate.
        image_size: Short side that images are resized to in training and testing, in pixels.
        augment: 'strong' for Mosaic, large-scale jitter and MixUp.
        ema: Average the weights over training, and validate and save the averages.
        patience: Stop after so many validations without a better metric.
        log: Names of `LOGGERS` to log to, besides the files in `work_dir`.
        workers: Processes that load data.
        resume: A checkpoint to resume from; True for the latest one in the work directory.
        amp: Automatic mixed precision.
        auto_scale_lr: Scale the learning rate from the config's `auto_scale_lr.base_batch_size`, as mmengine does.
        cfg_options: Entries of the config by the paths of their keys, `a.b.0.c`. They take precedence over the other
            arguments.
        launcher: Of a distributed run: none, pytorch, slurm or mpi.
        local_rank: Set by `torch.distributed.launch`.
    """
    with exit_on(ImportError, OSError, ValueError):
        check_training(config, data, epochs, lr, image_size, patience, log, workers, resume)
    options = dict(cfg_options or {})
    arguments = Namespace(
        config=config,
        data=None if data is None else str(data),
        image_size=image_size,
        work_dir=None if work_dir is None else str(work_dir),
        cfg_options=options,
        launcher=launcher,
        local_rank=local_rank,
    )
    own_data = data is not None
    base_batch = 0  # total batch that the config's learning rate is for

    def adjust(cfg: Config) -> None:
        nonlocal base_batch
        base_batch = (cfg.get('auto_scale_lr') or {}).get('base_batch_size', 0) * accumulated(cfg)
        if epochs is not None:
            settings.set_epochs(cfg, epochs)
        if image_size is not None and not own_data:
            print_once(*set_image_size(cfg, image_size))
        if augment == 'strong':
            print_once(augment_strongly(cfg))
        elif augment is not None:
            raise ValueError(f"--augment {augment!r} must be 'strong'")
        if workers is not None or own_data:
            settings.set_workers(cfg, settings.default_workers() if workers is None else workers)
        if ema:
            settings.average_weights(cfg)
        if patience is not None:
            settings.stop_early(cfg, patience)
        settings.log_to(cfg, log)

    cfg = load_config(arguments, adjust=adjust)
    with exit_on(ValueError):
        check_epochs((cfg.get('train_cfg') or {}).get('max_epochs', 1))
    if auto_scale_lr and not base_batch:
        raise SystemExit(f'error: --auto-scale-lr: {config} has no auto_scale_lr.base_batch_size to scale from')
    if own_data:
        print_once(*settings.validate_often(cfg))
    settings.keep_the_best(cfg)
    if amp:
        cfg.optim_wrapper.type = 'AmpOptimWrapper'
        cfg.optim_wrapper.loss_scale = 'dynamic'
    if auto_scale_lr:
        cfg.auto_scale_lr.enable = True
    if resume:
        cfg.resume = True
        cfg.load_from = None if resume is True else str(resume)
    runner = build_runner(cfg, splits=('train', 'val'))
    _fit_schedule_and_lr(runner, own_data, lr, auto_scale_lr, options, base_batch)
    last = _LastMetrics()
    runner.register_hook(last)
    run_training(runner, how_to_continue='--resume continues from the latest.')
    return TrainingResult(last.metrics, _best_checkpoint(runner), Path(cfg.work_dir))


def _fit_schedule_and_lr(
    runner: Runner, own_data: bool, lr: float | None, auto_scale_lr: bool, options: Mapping[str, Any], base_batch: int
) -> None:
    """Fits the schedule to the length of training and the learning rate to the total batch; shows both."""
    by_options = any(key.startswith('param_scheduler') for key in options)
    with build_errors():  # the training loop and its data are built here
        schedule = fit_schedule(runner, stretch=not by_options, short_warm_up=own_data)
    by_batch = own_data and not auto_scale_lr and 'optim_wrapper.optimizer.lr' not in options
    rate = fit_lr(runner, lr, base_batch if by_batch else 0)
    if rate is not None and auto_scale_lr:
        rate = rate._replace(reason='before --auto-scale-lr')
    runner.register_hook(SummaryHook(schedule, rate))


class _LastMetrics(Hook):
    """Keeps the metrics of the last validation."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self.metrics = dict(metrics or {})


def _best_checkpoint(runner: Runner) -> Path | None:
    names = [value for key, value in runner.message_hub.runtime_info.items() if key.startswith('best_ckpt')]
    existing = [Path(name) for name in names if name and Path(name).is_file()]
    return existing[0] if existing else noted_checkpoint(Path(runner.work_dir))
