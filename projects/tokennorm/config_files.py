"""Reads configs and applies `--cfg-options`, with clear errors for misspelled keys."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.runner import Runner

from tokennorm.config_paths import config as config_path
from tokennorm.messages import UserError, did_you_mean, user_errors

_NEAR = 0.8  # trian_cfg and train_cfg are


def read_config(name: str | Path) -> Config:
    """Returns mmengine's config of a file with a model, or of a config's name (`tokennorm.config`)."""
    with user_errors(FileNotFoundError):
        path = config_path(name)
    try:
        cfg = Config.fromfile(path)
    except Exception as error:
        raise UserError(f'config {path} cannot be read: {type(error).__name__}: {error}') from None
    if not isinstance(cfg.get('model'), Mapping):
        raise UserError(f'{path} has no model: it is not a whole config')
    return cfg


def use_options(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options` in place, entries by the paths of their keys, and raises `UserError`.

    A key may be new: many arguments have defaults that no config names. mmengine ignores misspelled keys at the top
    level, and so the name of an existing key must not be near; constructors report the others.
    """
    known = {*cfg, *inspect.signature(Runner.__init__).parameters}
    for path, value in (options or {}).items():
        first = path.partition('.')[0]
        if first not in known and (meant := did_you_mean(first, sorted(known), _NEAR)):
            raise UserError(f'--cfg-options: {path}: the config has no {first}{meant}')
        try:
            cfg.merge_from_dict({path: value})
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            reason = str(error.args[0] if error.args else error).partition(' [')[0]  # without the whole list
            raise UserError(f'--cfg-options: {path}: {reason}') from None
