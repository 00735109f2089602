"""What the command lines in tools/ share: arguments, the config they name, and checks before anything long begins."""

import argparse
import errno
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import RUNNERS, init_default_scope
from mmengine.runner import Runner

from tokennorm.build_errors import build_errors
from tokennorm.check_env import require_mmcv_ops
from tokennorm.checkpoints import CheckpointError, check_fit, read_state_dict
from tokennorm.checkpoints.in_mmengine import keep_mmengine_from_unpickling
from tokennorm.checkpoints.start import check_allow_missing, check_start, how_to_start
from tokennorm.config_options import ConfigOptions, merge_options
from tokennorm.datasets.checks import check_config_data
from tokennorm.datasets.coco_folder import find_coco_splits
from tokennorm.datasets.image_folder import find_image_folder, is_classifier, use_image_folder, use_loader_defaults
from tokennorm.datasets.inspection import inspect_splits
from tokennorm.datasets.own_data import use_coco_splits
from tokennorm.hooks import DataErrorHook
from tokennorm.hooks.data_errors import DataError
from tokennorm.hooks.non_finite import NonFiniteError
from tokennorm.model_checks import check_neck, check_optimizer, check_runner_type
from tokennorm.output_folder import make_output_folder
from tokennorm.training.distributed import start_cpu_processes
from tokennorm.training.resuming import latest_checkpoint, make_resumable

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

warnings.filterwarnings('ignore', message='faster_coco_eval is not installed')  # nothing of ours asks for it


def add_runner_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that mmdet's tools have in common."""
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--work-dir', help='folder for logs and checkpoints; default: that of the config, or work_dirs/NAME'
    )
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='folder to use instead of the data of the config, with its classes: in COCO format for a detector, '
        'with train/CLASS/*.jpg and val/CLASS/*.jpg for a classifier',
    )
    parser.add_argument(
        '--cfg-options', nargs='+', action=ConfigOptions, help='entries of the config to set, as key=value'
    )
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='job launcher')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='set by torch.distributed.launch')


def load_config(args: argparse.Namespace, needed: tuple[str, ...] = ('train', 'val')) -> Config:
    """The config that the arguments name, with their data, their overrides and a work folder.

    Args:
        args: Parsed `add_runner_arguments`.
        needed: Splits that the data must have.

    Raises:
        SystemExit: with what to do, where the config is not there or cannot be read, an option does not fit it, or the
            data would break it.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    if not Path(args.config).is_file():
        raise SystemExit(f'error: config {args.config} is not there')
    cfg = read_config(args.config)
    cfg.launcher = args.launcher
    if args.data is not None:
        use = use_class_folders if is_classifier(cfg) else use_data
        use(cfg, args.data, needed)
    if is_classifier(cfg):
        use_loader_defaults(cfg)
    cfg.setdefault('default_hooks', {})
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))
    use_options(cfg, args.cfg_options)
    if cfg.default_hooks.non_finite is None:
        del cfg.default_hooks['non_finite']
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(args.config).stem)
    return cfg


def read_config(path: str | Path) -> Config:
    """mmengine's config of a file.

    Raises:
        SystemExit: with the file and the line of the error, whatever it is: a config is a Python file.
    """
    try:
        return Config.fromfile(path)
    except Exception as error:
        raise SystemExit(f'error: config {path} cannot be read: {type(error).__name__}: {error}') from None


def use_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Sets what `--cfg-options` says, and prints its warnings.

    Raises:
        SystemExit: for an option that does not fit the config.
    """
    try:
        for warning in merge_options(cfg, options or {}):
            print(f'warning: {warning}', flush=True)
    except ValueError as error:
        raise SystemExit(f'error: {error}') from None


def use_data(cfg: Config, folder: str, needed: tuple[str, ...]) -> None:
    """Points a config at a COCO-format folder, after an inspection whose findings are printed.

    Raises:
        SystemExit: where something in the folder would break training or evaluation.
    """
    try:
        splits = find_coco_splits(folder, needed)
        first_process = _is_first_process()
        found = inspect_splits(splits, open_images=first_process)
        if first_process:
            print(f'{folder}\n\n{found}\n', flush=True)
        if found.errors:
            raise ValueError(f'{folder} has errors, listed above; mend them and start again')
        for change in use_coco_splits(cfg, splits, found):
            if first_process:
                print(f'--data: {change}', flush=True)
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f'error: {error}') from None


def use_class_folders(cfg: Config, folder: str, needed: tuple[str, ...]) -> None:
    """Points a classifier's config at a folder of images in folders of classes, and prints what is there.

    Raises:
        SystemExit: where the folder is not laid out so.
    """
    try:
        splits = find_image_folder(folder, needed)
        changes = use_image_folder(cfg, splits)
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f'error: {error}') from None
    if _is_first_process():
        for name, split in splits.items():
            counts = split.counts.values()
            print(
                f'--data: {name} is {split.folder}: {sum(counts)} images of {len(counts)} classes, '
                f'{min(counts)} to {max(counts)} of each'
            )
        for change in changes:
            print(f'--data: {change}', flush=True)


def _is_first_process() -> bool:
    return int(os.environ.get('RANK', os.environ.get('SLURM_PROCID', 0))) == 0


def build_runner(cfg: Config, splits: tuple[str, ...]) -> Runner:
    """mmengine's runner of a config, after checks of what most often breaks it.

    Args:
        cfg: A whole config.
        splits: Which of 'train', 'val' and 'test' will run; their annotation files must be there.

    Raises:
        SystemExit: with what to do, where mmcv has no compiled ops, a dataset is not as the config says, the weights
            to start from are not there, or nothing can be written to the work folder.
    """
    try:
        require_mmcv_ops()
        keep_mmengine_from_unpickling()
        for key in ('model', *(f'{split}_dataloader' for split in splits if split != 'val')):
            if not cfg.get(key):
                raise ValueError(f'{cfg.filename} has no {key}: it is a part of a config, or none')
        check_runner_type(cfg)
        check_config_data(cfg, splits)
        if 'train' in splits:
            make_resumable(cfg)
            _find_checkpoint_to_resume(cfg)
            check_start(cfg)
        make_output_folder(cfg.work_dir)
        start_cpu_processes(cfg)
        init_default_scope(cfg.get('default_scope', 'mmengine'))  # Runner leaves it where its name was seen before
    except (ImportError, RuntimeError, ValueError, FileNotFoundError) as error:
        raise SystemExit(f'error: {error}') from None
    with build_errors():
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    try:
        model = getattr(runner.model, 'module', runner.model)
        check_neck(model, cfg.model.get('neck'))
        check_allow_missing(model)
        check_optimizer(cfg.get('optim_wrapper'))
    except ValueError as error:
        raise SystemExit(f'error: {error}') from None
    runner.register_hook(DataErrorHook())
    if 'train' in splits:
        _check_start_fits(runner, cfg)
    return runner


def _find_checkpoint_to_resume(cfg: Config) -> None:
    """Where none is named, the latest in the work folder; where there is none the training starts anew, and says so."""
    if not cfg.get('resume') or cfg.get('load_from'):
        return
    latest = latest_checkpoint(cfg.work_dir)
    cfg.load_from = None if latest is None else str(latest)
    if latest is None:
        cfg.resume = False
        warnings.warn(f'--resume: no checkpoint in {cfg.work_dir}, training starts at its beginning', stacklevel=3)


def _check_start_fits(runner: Runner, cfg: Config) -> None:
    """mmengine takes of a checkpoint what fits and no more. To resume all must fit; with `load_from` alone a head for
    other classes may differ, a backbone may not."""
    checkpoint = cfg.get('load_from')
    model = getattr(runner.model, 'module', runner.model)
    if not checkpoint:
        return
    try:
        state_dict = read_state_dict(checkpoint)
        if cfg.get('resume'):
            check_fit(model, state_dict, checkpoint)
        elif hasattr(model, 'backbone'):
            backbone = {k.removeprefix('backbone.'): v for k, v in state_dict.items() if k.startswith('backbone.')}
            check_fit(model.backbone, backbone, f'load_from={checkpoint}')
    except (CheckpointError, OSError) as error:
        raise SystemExit(f'error: {error}') from None


def train(runner: Runner, to_go_on: str) -> None:
    """Trains; an interruption ends with where the checkpoints are and what makes it go on, rather than a traceback."""
    try:
        with build_errors():
            runner.train()
    except (CheckpointError, FileNotFoundError) as error:
        start = runner.cfg.model.backbone.get('init_cfg') or {}
        raise SystemExit(f'error: {error}\n{how_to_start(start.get("checkpoint", ""))}') from None
    except (DataError, NonFiniteError) as error:
        raise SystemExit(f'error: {error}') from None
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        raise SystemExit(
            f'error: {error}. The disk or the quota is full; earlier checkpoints in {runner.work_dir} are as they '
            f'were. Make room, then {to_go_on}'
        ) from None
    except KeyboardInterrupt:
        raise SystemExit(f'\nInterrupted. Checkpoints so far are in {runner.work_dir}; {to_go_on}') from None


def test(runner: Runner) -> None:
    """Evaluates; a file that cannot be read ends with its name, rather than a traceback."""
    try:
        with build_errors():
            runner.test()
    except DataError as error:
        raise SystemExit(f'error: {error}') from None
