"""Reads configs and applies `--cfg-options`, with clear errors for misspelled keys."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.runner import Runner

from tokennorm.config_paths import config as config_path
from tokennorm.messages import UserError, did_you_mean, print_once, user_errors

_NEAR = 0.8  # stem_cfg and init_cfg are not, max_epoch and max_epochs are
_OTHER_TOP_LEVEL_KEYS = {'runner_type', 'activation_checkpointing', 'efficient_conv_bn_eval', 'compile', 'fp16'}


def read_config(name: str | Path) -> Config:
    """Returns mmengine's config of a file, or of a config's name (`tokennorm.config`).

    Raises:
        UserError: with the file and the error, whatever it is: a config is a Python file.
    """
    with user_errors(FileNotFoundError):
        path = config_path(name)
    try:
        return Config.fromfile(path)
    except Exception as error:
        raise UserError(f'config {path} cannot be read: {type(error).__name__}: {error}') from None


def use_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options`, and prints warnings."""
    check_options(cfg, options)
    with user_errors(ValueError):
        merge_options(cfg, options or {})


def check_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Prints warnings about keys, and raises `UserError` for one that nothing would read."""
    with user_errors(ValueError):
        found = check_keys(cfg, options or {})
    print_once(*(f'warning: {warning}' for warning in found))


def merge_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Sets entries of a config in place. A key may be new: many arguments have defaults that no config names.

    Raises:
        ValueError: for a key that does not fit the config.
    """
    for key, value in options.items():
        try:
            cfg.merge_from_dict({key: value})
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            reason = str(error.args[0] if error.args else error).partition(' [')[0]  # without the whole list
            raise ValueError(f'--cfg-options: {key}: {reason}') from None


def check_keys(cfg: Config, options: Mapping[str, Any]) -> list[str]:
    """Returns warnings about new keys that resemble existing ones. Places in lists are not checked: lists may grow.

    At the top level such a key raises `ValueError`, since nothing would read it.
    """
    return [warning for key in options for warning in _check_key(cfg, key)]


def _check_key(cfg: Config, path: str) -> list[str]:
    """Follows `path` to its first new part, and returns warnings about it."""
    node: Any = cfg
    parts = path.split('.')
    for i, part in enumerate(parts):
        above = '.'.join(parts[:i])
        if isinstance(node, list | tuple) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif not isinstance(node, Mapping | Config):
            break  # a place in a list, or a value that is not a dict, which mmengine reports
        elif part in node:
            node = node[part]
        elif i:
            meant = did_you_mean(part, node, _NEAR)
            return [f'--cfg-options: {path} is new: {above} has no {part}{meant}'] if meant else []
        elif part not in _top_level_keys():
            meant = did_you_mean(part, sorted({*node, *_top_level_keys()}), _NEAR)
            if meant:
                raise ValueError(f'--cfg-options: {path}: the config has no {part}{meant}')
            return [f'--cfg-options: {path} is new: the config has no {part}, and mmengine does not read it']
        else:
            break
    return []


def _top_level_keys() -> set[str]:
    """The top-level keys that mmengine's runner reads."""
    return set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'} | _OTHER_TOP_LEVEL_KEYS
