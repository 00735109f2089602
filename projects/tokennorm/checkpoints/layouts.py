"""Checkpoint layouts: how an author names a backbone's parameters. Each backbone lists those that it loads."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

StateDict = dict[str, Tensor]
Names = dict[str, str | Callable[[re.Match], str]]


class Layout(NamedTuple):
    """Names of parameters."""

    author: str  # who uses these names
    known_by: tuple[str, ...]  # keys that all such state dicts have
    # of the LayerNorms that these weights were trained with, where it differs from the backbone's default
    eps: float | None = None


class Converted(StateDict):
    """A state dict with TokenNorm's keys, and notes about the conversion.

    Attributes:
        unused: Keys of the source that it leaves out.
        added: Keys that the source lacks; filled with published initial values.
        sources: The source's key of each of its keys that has another name there.
    """

    def __init__(self, state_dict: Mapping[str, Tensor]) -> None:
        super().__init__(state_dict)
        self.unused: list[str] = []
        self.added: list[str] = []
        self.sources: dict[str, str] = {}

    def leave_out(self, key: str) -> None:
        """Removes one of its keys."""
        del self[key]
        self.unused.append(self.sources.get(key, key))

    def add(self, key: str, value: Tensor) -> None:
        """Adds an initial value, unless the source has the key."""
        if key not in self:
            self[key] = value
            self.added.append(key)


def rename(state_dict: StateDict, names: Names, unused: str = '$') -> Converted:
    """Replaces the patterns of `names` in the keys of a state dict, one after the other.

    Keys that then begin like `unused` are left out.
    """
    converted = Converted({})
    for key, value in state_dict.items():
        name = key
        for pattern, new in names.items():
            name = re.sub(pattern, new, name)
        if re.match(unused, name):
            converted.unused.append(key)
        else:
            converted[name], converted.sources[name] = value, key
    return converted


def find_layout(model: Any, state_dict: StateDict) -> Layout | None:
    """Returns the first of a backbone's `layouts` whose keys a state dict has."""
    return next((layout for layout in model.layouts if all(key in state_dict for key in layout.known_by)), None)
