"""A config under changes: which entry was changed, and why. What the user sets stays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mmengine.config import Config

from tokennorm.base.messages import shorten
from tokennorm.base.ranks import print_once
from tokennorm.config.open_config import check_options, merge_options

_ABSENT = object()
_MOST_SHOWN = 2  # entries in a line


@dataclass(frozen=True)
class Change:
    """An entry that was changed: its keys, its value before and after, and whether it is printed in the end."""

    keys: tuple[Any, ...]
    value: Any
    before: Any
    why: str
    shows: bool

    @property
    def path(self) -> str:
        """Its path as `--cfg-options` has it, `a.b.0.c`."""
        return '.'.join(map(str, self.keys))

    def __str__(self) -> str:
        before = '' if self.before is _ABSENT or isinstance(self.before, Mapping) else f' (was {self.before})'
        return f'{self.path} removed' if self.value is _ABSENT else f'{self.path}={self.value}{before}'


class Plan:
    """A config and the changes that are made in it.

    The user's entries are set first, so that every decision knows them, and again after each one, so that none
    overrules them. Of other decisions about an entry the later one counts.

    Args:
        cfg: The config of the recipe, changed in place.
        options: Entries that the user sets by their paths, as `--cfg-options` does.

    Raises:
        UserError: for an entry that nothing would read.
    """

    def __init__(self, cfg: Config, options: Mapping[str, Any] | None = None) -> None:
        self.cfg = cfg
        self.recipe: dict[str, Any] = deepcopy(cfg._cfg_dict.to_dict())  #: the config before any change
        self.changes: list[Change] = []  #: in their order
        self._options = dict(options or {})
        check_options(cfg, options)
        with self.step('--cfg-options', show=False):
            self._merge([path for path in self._options if _exists(cfg._cfg_dict, path)])

    def users(self, *paths: str) -> list[str]:
        """Returns the entries that the user has set in these parts of the config."""
        return [entry for entry in _paths(self._options) if any(_meet(entry, path) for path in paths)]

    @contextmanager
    def step(self, why: str, show: bool = True) -> Iterator[None]:
        """Records what the block changes in the config, where the user's entries stay.

        With `show`, what is left of the step in the end is printed in one line.
        """
        before = deepcopy(self.cfg._cfg_dict.to_dict())
        yield
        changed = [path for path in self._options if _at(self.cfg._cfg_dict, path) != _at(before, path)]
        self._merge([path for path in changed if _exists(self.cfg._cfg_dict, path)])
        differences = _differences(before, self.cfg._cfg_dict.to_dict())
        self.changes += [Change(keys, new, old, why, show) for keys, old, new in differences]

    def set(self, path: str, value: Any, why: str, show: bool = True) -> bool:
        """Sets an entry, and returns whether it has; not where the user has set it, or something in it."""
        if self.users(path):
            return False
        with self.step(why, show):
            merge_options(self.cfg, {path: value})
        return True

    def replace(self, key: str, value: Any, why: str, keep: Sequence[tuple[Any, ...]] = ()) -> None:
        """Replaces a part of the recipe. What was changed in it stays, and the entries to `keep` do."""
        changed = [one.keys for one in self.changes if one.keys[0] == key]
        for keys in (*changed, *keep):
            above, entry = _at(value, keys[1:-1]), _at(self.cfg._cfg_dict, keys)
            if entry is _ABSENT and isinstance(above, dict):
                above.pop(keys[-1], None)
            elif isinstance(above, dict) or (isinstance(above, list) and keys[-1] < len(above)):
                above[keys[-1]] = deepcopy(entry)
        with self.step(why):
            self.cfg[key] = value

    def finish(self) -> None:
        """Sets the user's entries once more: parts that they name may have come into the config since.

        Then the changes are printed, a line per decision.
        """
        with self.step('--cfg-options', show=False):
            self._merge(self._options)
        print_once(*self._lines())

    def _lines(self) -> Iterator[str]:
        """Yields each decision with the difference that is left of it."""
        left = [one for one in self.changes if one.shows and _at(self.cfg._cfg_dict, one.keys) == one.value]
        for why, changes in groupby(left, lambda one: one.why):
            shown = shorten(list(map(str, changes)), _MOST_SHOWN)
            yield f'{why}: {shown}'

    def _merge(self, paths: Iterable[str]) -> None:
        """Sets entries of the user."""
        merge_options(self.cfg, {path: self._options[path] for path in paths})


def _paths(options: Mapping[str, Any], name: str = '') -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping) and value and '_delete_' not in value:
            yield from _paths(value, f'{name}{key}.')
        else:
            yield f'{name}{key}'


def _meet(path: str, other: str) -> bool:
    """Returns whether one path leads into the other."""
    return f'{path}.'.startswith(f'{other}.') or f'{other}.'.startswith(f'{path}.')


def _at(node: Any, path: str | tuple[Any, ...]) -> Any:
    """Returns the entry at a path of keys."""
    for key in path.split('.') if isinstance(path, str) else path:
        try:
            node = node[int(key) if isinstance(node, list | tuple) else key]
        except (LookupError, TypeError, ValueError):
            return _ABSENT
    return node


def _exists(cfg: Mapping[str, Any], path: str) -> bool:
    """Returns whether an entry is there, or the part of the config that may have it."""
    above = _at(cfg, tuple(path.split('.')[:-1]))
    return _at(cfg, path) is not _ABSENT or isinstance(above, Mapping)


def _differences(before: Any, after: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yields the keys, the old and the new value of every entry that differs, inside dicts and equally long lists."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(key, _ABSENT), after.get(key, _ABSENT), (*keys, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, (*keys, i))
    elif before is not after and (type(before) is not type(after) or before != after):
        yield keys, before, after
