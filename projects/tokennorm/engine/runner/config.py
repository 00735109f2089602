"""A config from command-line arguments."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from tokennorm.config_paths import config as config_path
from tokennorm.datasets.image_folder import is_classifier, use_loader_defaults
from tokennorm.engine.distributed import print_once
from tokennorm.engine.runner.data import use_data_folder
from tokennorm.engine.runner.options import check_keys, merge_options
from tokennorm.engine.runner.report import use_report
from tokennorm.messages import exit_on


def load_config(
    args: argparse.Namespace,
    needed: tuple[str, ...] = ('train', 'val'),
    adjust: Callable[[Config], None] | None = None,
) -> Config:
    """Returns the config that the arguments name, with their data, options and work directory.

    Args:
        args: Parsed `add_runner_arguments`.
        needed: Splits that `--data` must have.
        adjust: Changes the config before `--cfg-options` do; its `ValueError` ends with one line.

    Raises:
        SystemExit: with what to do, if the config is not found or cannot be read, an option does not fit it, or the
            data would break training or evaluation.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = read_config(args.config)
    cfg.launcher = args.launcher
    check_options(cfg, args.cfg_options)  # before the data is read, which may take a minute
    if args.data is not None:
        use_data_folder(cfg, args.data, needed, getattr(args, 'image_size', None), fit_images='train' in needed)
    if is_classifier(cfg):
        use_loader_defaults(cfg)
    cfg.setdefault('default_hooks', {})
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))
    use_report(cfg)
    with exit_on(ValueError):
        if adjust is not None:
            adjust(cfg)
        merge_options(cfg, args.cfg_options or {})
    if cfg.default_hooks.non_finite is None:
        del cfg.default_hooks['non_finite']
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(cfg.filename).stem)
    return cfg


def read_config(name: str | Path) -> Config:
    """Returns mmengine's config of a file, or of a config's name (`tokennorm.config`).

    Raises:
        SystemExit: with the file and the error, whatever it is: a config is a Python file.
    """
    with exit_on(FileNotFoundError):
        path = config_path(name)
    try:
        return Config.fromfile(path)
    except Exception as error:
        raise SystemExit(f'error: config {path} cannot be read: {type(error).__name__}: {error}') from None


def use_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options`, and prints warnings."""
    check_options(cfg, options)
    with exit_on(ValueError):
        merge_options(cfg, options or {})


def check_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Prints warnings about keys, and ends the program for one that nothing would read."""
    with exit_on(ValueError):
        found = check_keys(cfg, options or {})
    print_once(*(f'warning: {warning}' for warning in found))
