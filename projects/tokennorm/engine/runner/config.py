"""The arguments that name a config, and the config that they make of it."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from tokennorm.datasets.image_folder import is_classifier, use_loader_defaults
from tokennorm.engine.distributed import is_first_process
from tokennorm.engine.runner.data import use_data_folder
from tokennorm.engine.runner.options import ConfigOptions, merge_options


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
        hint = f"; make a file with `_base_ = '{args.config}'`" if '::' in args.config else ''
        raise SystemExit(f'error: config {args.config} is not there{hint}')
    cfg = read_config(args.config)
    cfg.launcher = args.launcher
    if args.data is not None:
        use_data_folder(cfg, args.data, needed)
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
            if is_first_process():
                print(f'warning: {warning}', flush=True)
    except ValueError as error:
        raise SystemExit(f'error: {error}') from None
