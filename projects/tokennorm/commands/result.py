"""`Result`: the value that a command returns."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from tokennorm.base.files import as_json


@dataclass(frozen=True)
class Result:
    """A result of a command. `print(result)` prints what the command prints about it."""

    lines: Sequence[str] = field(default=(), repr=False, compare=False, kw_only=True)

    def as_dict(self) -> dict[str, Any]:
        """Returns what the command prints with `--json`."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != 'lines'}
        return json.loads(as_json(values, default=_plain))

    def __str__(self) -> str:
        return '\n'.join(self.lines) or repr(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The last line of a notebook's cell shows what `print` does."""
        printer.text(str(self))


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
