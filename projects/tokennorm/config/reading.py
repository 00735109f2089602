"""Reads configs and applies `--cfg-options`, with clear errors for misspelled keys."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.runner import Runner

from tokennorm.config.class_types import name_types
from tokennorm.config.paths import config as config_path
from tokennorm.messages import UserError, did_you_mean
from tokennorm.ranks import print_once

_NEAR = 0.8  # similarity from which a key is a typo: that of max_epoch and max_epochs, not of stem_cfg and init_cfg


def read_config(name: str | Path) -> Config:
    """Returns mmengine's config of a file with a model, or of a config's name (`tokennorm.config`)."""
    try:
        path = config_path(name)
    except FileNotFoundError as error:
        raise UserError(str(error)) from None
    try:
        cfg = Config.fromfile(path)
        is_whole = isinstance(cfg.get('model'), Mapping)
        if is_whole:
            name_types(cfg)
    except Exception as error:
        raise UserError(f'config {path} cannot be read: {type(error).__name__}: {error}') from None
    if not is_whole:
        raise UserError(f'{path} has no model: it is not a whole config')
    return cfg


def use_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options`, and prints warnings."""
    check_options(cfg, options)
    merge_options(cfg, options)


def check_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Prints a warning for each new key that resembles an existing one; at the top level it raises `UserError`.

    Other new keys are usual defaults.
    """
    for path in options or {}:
        node: Any = cfg
        parts = path.split('.')
        for i, part in enumerate(parts):
            if isinstance(node, list | tuple) and part.isdigit() and int(part) < len(node):
                node = node[int(part)]
            elif isinstance(node, Mapping | Config) and part in node:
                node = node[part]
            else:
                known = set(node) if isinstance(node, Mapping | Config) else set()
                known |= set() if i else set(inspect.signature(Runner.__init__).parameters)
                meant = did_you_mean(part, sorted(known - {part}), _NEAR) if part not in known else ''
                if meant and i == 0:
                    raise UserError(f'--cfg-options: {path}: the config has no {part}{meant}')
                if meant:
                    above = '.'.join(parts[:i])
                    print_once(f'warning: --cfg-options: {path} is new: {above} has no {part}{meant}')
                break


def merge_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Sets entries of a config in place. A key may be new: many arguments have defaults that no config names."""
    for key, value in (options or {}).items():
        try:
            cfg.merge_from_dict({key: value})
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            reason = str(error.args[0] if error.args else error).partition(' [')[0]  # without the whole list
            raise UserError(f'--cfg-options: {key}: {reason}') from None
