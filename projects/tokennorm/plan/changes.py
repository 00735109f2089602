"""A config under changes: who changed which entry, why, and who may change it after that."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from mmengine.config import Config

from tokennorm.config.reading import check_options, merge_options
from tokennorm.messages import shorten
from tokennorm.ranks import print_once

_ABSENT = object()
_MOST_SHOWN = 2  # entries in a line


class Rank(IntEnum):
    """Who sets an entry of a config; the higher one keeps what it has set."""

    RECIPE = 0
    DATA = 1
    OPTION = 2
    USER = 3  # `--cfg-options`


@dataclass(frozen=True)
class Change:
    """An entry that was changed: its keys, and its value before and after."""

    keys: tuple[Any, ...]
    value: Any
    before: Any
    rank: Rank
    why: str

    @property
    def path(self) -> str:
        """Its path as `--cfg-options` has it, `a.b.0.c`."""
        return '.'.join(map(str, self.keys))

    def __str__(self) -> str:
        before = '' if self.before is _ABSENT or isinstance(self.before, Mapping) else f' (was {self.before})'
        return f'{self.path} removed' if self.value is _ABSENT else f'{self.path}={self.value}{before}'


@dataclass
class Step:
    """The changes of one decision, and the entries that it would have changed but that a higher rank has set."""

    rank: Rank
    why: str
    shows: bool = True
    changes: list[Change] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def line(self, cfg: Config) -> str:
        """Returns the decision and the difference that it made in a config; '' where nothing is left of it."""
        changes = [one for one in self.changes if _value_at(cfg._cfg_dict, one.keys) == one.value]
        if not changes:
            return ''
        shown, more = ', '.join(map(str, changes[:_MOST_SHOWN])), len(changes) - _MOST_SHOWN
        if more > 0:
            shown += f' and {more} more'
        kept = f'; as --cfg-options set it: {shorten(self.kept, _MOST_SHOWN)}' if self.kept else ''
        return f'{"--data: " if self.rank == Rank.DATA else ""}{self.why}: {shown}{kept}'


class Plan:
    """A config and the changes that are made in it.

    The user's entries are set first, so that every decision knows them and none overrules them.

    Args:
        cfg: The config of the recipe, changed in place.
        options: Entries that the user sets by their paths, as `--cfg-options` does.
        quiet: Print no changes.

    Raises:
        UserError: for an entry that nothing would read.
    """

    def __init__(self, cfg: Config, options: Mapping[str, Any] | None = None, quiet: bool = False) -> None:
        self.cfg, self.quiet = cfg, quiet
        self.recipe: dict[str, Any] = deepcopy(cfg._cfg_dict.to_dict())  #: the config before any change
        self.steps: list[Step] = []
        self._options = dict(options or {})
        self._set_by: dict[str, Rank] = {path: Rank.USER for path in _paths(self._options)}
        check_options(cfg, options)
        with self._recorded(Rank.USER, '--cfg-options'):
            self._merge(must=False)

    @property
    def changes(self) -> list[Change]:
        """All changes, in their order."""
        return [change for step in self.steps for change in step.changes]

    def users(self, *paths: str) -> list[str]:
        """Returns the entries that the user has set in these parts of the config."""
        own = [one for one, rank in self._set_by.items() if rank == Rank.USER]
        return [one for one in own if any(_meet(one, path) for path in paths)]

    @contextmanager
    def step(self, rank: Rank, why: str, show: bool = True) -> Iterator[Step]:
        """Records what the block changes in the config, and takes back what a higher rank has set before.

        With `show`, what is left of the step in the end is printed in one line.
        """
        with self._recorded(rank, why) as step:
            step.shows = show
            yield step

    def set(self, path: str, value: Any, rank: Rank, why: str, show: bool = True) -> bool:
        """Sets an entry, and returns whether it has; not where a higher rank has set it, or something in it."""
        if any(_meet(one, path) and other > rank for one, other in self._set_by.items()):
            return False
        with self.step(rank, why, show):
            merge_options(self.cfg, {path: value})
            self._set_by[path] = rank
        return True

    def finish(self) -> None:
        """Sets the user's entries once more: parts that they name may have come into the config since.

        Then the changes that are left are printed, a line per decision.
        """
        with self._recorded(Rank.USER, '--cfg-options'):
            self._merge(must=True)
        steps = [one for one in self.steps if one.shows and one.rank < Rank.USER and not self.quiet]
        print_once(*filter(None, (step.line(self.cfg) for step in steps)))

    @contextmanager
    def _recorded(self, rank: Rank, why: str) -> Iterator[Step]:
        before = deepcopy(self.cfg._cfg_dict.to_dict())
        step = Step(rank, why)
        yield step
        for keys, old, new in list(_differences(before, self.cfg._cfg_dict.to_dict())):
            path = '.'.join(map(str, keys))
            owners = [one for one, other in self._set_by.items() if other > rank and _holds(one, path)]
            if owners and old is not _ABSENT:
                _put(self.cfg._cfg_dict, keys, old)
                step.kept.append(path)
            else:
                step.changes.append(Change(keys, new, old, rank, step.why))
                if rank > Rank.RECIPE:
                    self._set_by[path] = max(rank, self._set_by.get(path, rank))
        if step.changes or step.kept:
            self.steps.append(step)

    def _merge(self, must: bool) -> None:
        for path, value in self._options.items():
            if must or _exists(self.cfg, path):
                merge_options(self.cfg, {path: value})


def _paths(options: Mapping[str, Any], name: str = '') -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping) and value and '_delete_' not in value:
            yield from _paths(value, f'{name}{key}.')
        else:
            yield f'{name}{key}'


def _holds(outer: str, path: str) -> bool:
    """Returns whether a path is another one or leads into it."""
    return path == outer or path.startswith(f'{outer}.')


def _meet(one: str, other: str) -> bool:
    return _holds(one, other) or _holds(other, one)


def _exists(cfg: Config, path: str) -> bool:
    """Returns whether the part of the config is there that has the last key of a path."""
    node: Any = cfg._cfg_dict
    for part in path.split('.')[:-1]:
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list | tuple) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return False
    return not isinstance(node, list | tuple) or int(path.rpartition('.')[2]) < len(node)


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


def _value_at(node: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        inside = key in node if isinstance(node, Mapping) else isinstance(node, list) and key < len(node)
        node = node[key] if inside else _ABSENT
    return node


def _put(node: Any, keys: tuple[Any, ...], value: Any) -> None:
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
