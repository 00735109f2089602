"""The command line's `--cfg-options`: entries that cannot be read, and keys that are spelt wrong."""

import argparse
import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from mmengine.config import Config, DictAction
from mmengine.runner import Runner

from tokennorm.names import did_you_mean

_NEAR = 0.8  # stem_cfg and init_cfg are not, max_epoch and max_epochs are
_OTHER_TOP_LEVEL_KEYS = {'runner_type', 'activation_checkpointing', 'efficient_conv_bn_eval', 'compile', 'fp16'}


class ConfigOptions(DictAction):
    """mmengine's action, whose errors end in the usage rather than in a traceback."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        for value in values:
            key, equals, _ = value.partition('=')
            if not equals or not all(key.split('.')):
                parser.error(f'{option_string}: {value!r} must be KEY=VALUE, where KEY is the path of an entry, a.b.c')
        try:
            super().__call__(parser, namespace, values, option_string)
        except (ValueError, AssertionError, IndexError) as error:
            parser.error(f'{option_string}: {" ".join(values)} cannot be read: {error}')


def merge_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Sets entries of a config, in place. A key may be new: many arguments have defaults that no config names.

    A new key that looks like an existing one beside it is a warning. At the top level, where nothing would read it and
    no error follow, it is an error.

    Args:
        cfg: A whole config.
        options: Values by the paths of their keys, `a.b.0.c`.

    Raises:
        ValueError: for a key that is surely spelt wrong, and for one that does not fit the config.
    """
    for key in options:
        _check_key(cfg, key)
    try:
        cfg.merge_from_dict(dict(options))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f'--cfg-options: {", ".join(options)}: {error.args[0] if error.args else error}') from None


def _check_key(cfg: Config, path: str) -> None:
    """Goes down to the first part of `path` that is not there."""
    node: Any = cfg
    parts = path.split('.')
    for i, part in enumerate(parts):
        if isinstance(node, list | tuple):
            if not part.isdigit() or int(part) >= len(node):
                raise ValueError(
                    f'--cfg-options: {path}: {".".join(parts[:i])} is a list of {len(node)} entries, counted from 0; '
                    f'it has no {part!r}'
                )
            node = node[int(part)]
        elif isinstance(node, Mapping | Config):
            if part in node:
                node = node[part]
                continue
            known = set(node.keys()) if i else set(node.keys()) | _top_level_keys()
            meant = did_you_mean(part, sorted(known), _NEAR)
            if i == 0 and part not in known:
                _report_top_level(part, meant)
            elif i and meant:
                warnings.warn(
                    f'--cfg-options: {path} is new: {".".join(parts[:i])} has no {part}{meant}', stacklevel=2
                )
            return
        else:
            return  # a value becomes a dict, or mmengine refuses it


def _report_top_level(key: str, meant: str) -> None:
    if meant:
        raise ValueError(f'--cfg-options: the config has no {key}{meant}')
    warnings.warn(f'--cfg-options: the config has no {key}; nothing may read it', stacklevel=3)


def _top_level_keys() -> Iterable[str]:
    """What mmengine's runner reads of a config."""
    return set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'} | _OTHER_TOP_LEVEL_KEYS
