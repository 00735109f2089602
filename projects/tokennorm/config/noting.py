"""A dict that notes what is read from it, so that an entry that nothing reads is known without a list of names."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any


class Noting(dict):
    """A dict that notes which keys were asked for, whether it has them or not. Its copies note in the same place.

    Iterating over items or values counts as reading all of them, and iterating over keys does not.
    """

    def __init__(
        self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), asked: set[str] | None = None
    ) -> None:
        super().__init__(entries)
        self.asked: set[str] = set() if asked is None else asked

    def unread(self) -> list[str]:
        """Returns the keys that nothing has asked for."""
        return [key for key in self if key not in self.asked]

    def __iter__(self) -> Iterator[str]:  # Python takes dict(**noting) from the table of a dict that has none
        return iter(list(super().__iter__()))

    def items(self) -> Any:
        self.asked.update(self)
        return super().items()

    def values(self) -> Any:
        self.asked.update(self)
        return super().values()

    def copy(self) -> 'Noting':
        return Noting(super().items(), self.asked)

    def __deepcopy__(self, memo: dict[int, Any]) -> 'Noting':
        return Noting({key: deepcopy(value, memo) for key, value in super().items()}, self.asked)


def _noting(name: str) -> Any:
    """A method of dict whose first argument is a key, which notes it."""

    def method(self: Noting, key: str, *more: Any) -> Any:
        self.asked.add(key)
        return getattr(dict, name)(self, key, *more)

    return method


for name in ('__getitem__', '__contains__', 'get', 'pop', 'setdefault'):
    setattr(Noting, name, _noting(name))
