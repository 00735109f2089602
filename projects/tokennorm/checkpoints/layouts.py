"""Checkpoint layouts: how an author names a backbone's parameters. Each backbone lists those that it loads."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

StateDict = dict[str, Tensor]


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
        added: Its keys with the published initial values of parameters that the source lacks.
    """

    def __init__(self, state_dict: StateDict, unused: Iterable[str] = (), added: Iterable[str] = ()) -> None:
        super().__init__(state_dict)
        self.unused = list(unused)
        self.added = list(added)


def find_layout(model: Any, state_dict: StateDict) -> Layout | None:
    """Returns the first of a backbone's `layouts` whose keys a state dict has."""
    return next((layout for layout in model.layouts if all(key in state_dict for key in layout.known_by)), None)
