"""What the command lines in tools/ share: arguments, the config they name, and checks before anything long begins."""

import argparse
import os
import warnings
from pathlib import Path

from mmengine.config import Config, DictAction
from mmengine.registry import RUNNERS
from mmengine.runner import Runner, find_latest_checkpoint

from tokennorm.check_env import require_mmcv_ops
from tokennorm.checkpoints import CheckpointError, check_fit, read_state_dict
from tokennorm.checkpoints.start import check_start, how_to_start
from tokennorm.datasets.checks import check_config_data
from tokennorm.datasets.coco_folder import find_coco_splits
from tokennorm.datasets.image_folder import find_image_folder, is_classifier, use_image_folder, use_loader_defaults
from tokennorm.datasets.inspection import inspect_splits
from tokennorm.datasets.own_data import use_coco_splits

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
        '--cfg-options', nargs='+', action=DictAction, help='entries of the config to set, as key=value'
    )
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='job launcher')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='set by torch.distributed.launch')


def load_config(args: argparse.Namespace, needed: tuple[str, ...] = ('train', 'val')) -> Config:
    """The config that the arguments name, with their data, their overrides and a work folder.

    Args:
        args: Parsed `add_runner_arguments`.
        needed: Splits that the data must have.

    Raises:
        SystemExit: with what to do, where the config is not there or the data would break it.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    if not Path(args.config).is_file():
        raise SystemExit(f'error: config {args.config} is not there')
    cfg = Config.fromfile(args.config)
    cfg.launcher = args.launcher
    if args.data is not None:
        use = use_class_folders if is_classifier(cfg) else use_data
        use(cfg, args.data, needed)
    if is_classifier(cfg):
        use_loader_defaults(cfg)
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(args.config).stem)
    return cfg


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
        SystemExit: with what to do, where mmcv has no compiled ops, a dataset is not as the config says, or the
            weights to start from are not there.
    """
    try:
        require_mmcv_ops()
        check_config_data(cfg, splits)
        if 'train' in splits:
            check_start(cfg)
    except (ImportError, RuntimeError, ValueError, FileNotFoundError) as error:
        raise SystemExit(f'error: {error}') from None
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    if 'train' in splits:
        _check_start_fits(runner, cfg)
    return runner


def _check_start_fits(runner: Runner, cfg: Config) -> None:
    """mmengine takes of a checkpoint what fits and no more. To resume all must fit; with `load_from` alone a head for
    other classes may differ, a backbone may not."""
    checkpoint = cfg.get('load_from') or (cfg.get('resume') and find_latest_checkpoint(cfg.work_dir))
    if not checkpoint:
        return
    model = getattr(runner.model, 'module', runner.model)
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
        runner.train()
    except (CheckpointError, FileNotFoundError) as error:
        start = runner.cfg.model.backbone.get('init_cfg') or {}
        raise SystemExit(f'error: {error}\n{how_to_start(start.get("checkpoint", ""))}') from None
    except KeyboardInterrupt:
        raise SystemExit(f'\nInterrupted. Checkpoints so far are in {runner.work_dir}; {to_go_on}') from None
