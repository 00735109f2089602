"""The file of a robustness evaluation: what was evaluated, and what each cell came to, kept as soon as it is known."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from torch import Tensor, uint8

from tokennorm.files import write_atomically

CLEAN = ('clean', 0)
Cell = tuple[str, int]
"""A corruption and its severity, or `CLEAN`."""


def cell_name(cell: Cell) -> str:
    """'gaussian_noise 1', as it stands in files and in what is printed."""
    return '{} {}'.format(*cell)


def digest(*parts: Any) -> str:
    """12 hexadecimal digits that change with what is given: strings, or state dicts of tensors."""
    known = hashlib.sha256()
    for part in parts:
        if isinstance(part, Mapping) and all(isinstance(value, Tensor) for value in part.values()):
            for name, value in sorted(part.items()):
                known.update(name.encode())
                known.update(value.detach().cpu().contiguous().reshape(-1).view(uint8).numpy())
        else:
            known.update(repr(part).encode())
    return known.hexdigest()[:12]


@dataclass
class Results:
    """Metrics of a model per cell, in a json file.

    Args:
        path: The file.
        settings: What every cell depends on. Results of other `weights`, `model`, `pipeline`, `data` or `library` are
            other results.
        cells: 'gaussian_noise 1' -> metrics, as the evaluator names them.
        summary: What the report says.
    """

    path: Path
    settings: dict[str, Any]
    cells: dict[str, dict[str, float]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)

    def __contains__(self, cell: Cell) -> bool:
        return cell_name(cell) in self.cells

    def add(self, cell: Cell, metrics: Mapping[str, float]) -> None:
        """Adds the metrics of a cell, and writes the file."""
        self.cells[cell_name(cell)] = {k: float(value) for k, value in metrics.items() if isinstance(value, Real)}
        self.write()

    def get(self, cell: Cell, metric: str) -> float:
        """One metric of a cell."""
        return self.cells[cell_name(cell)][metric]

    def table(self, cells: Iterable[Cell], metric: str) -> dict[str, dict[int, float]]:
        """Corruption -> severity -> metric."""
        table: dict[str, dict[int, float]] = {}
        for corruption, severity in cells:
            table.setdefault(corruption, {})[severity] = self.get((corruption, severity), metric)
        return table

    def write(self) -> None:
        """Writes the file, whole or not at all."""
        content = dict(settings=self.settings, cells=self.cells, summary=self.summary)
        write_atomically(self.path, json.dumps(content, indent=1).encode())

    @classmethod
    def read(cls, path: Path) -> 'Results':
        """Raises ValueError where the file is not of this kind."""
        try:
            content = json.loads(path.read_text())
            return cls(path, dict(content['settings']), dict(content['cells']), dict(content['summary']))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{path} is no file of tools/robustness.py ({type(error).__name__}: {error})') from error

    @classmethod
    def go_on(cls, path: Path, settings: dict[str, Any]) -> 'Results':
        """Those of the file, if it is there.

        Raises:
            ValueError: where the file holds results of other settings.
        """
        if not path.exists():
            return cls(path, settings)
        results = cls.read(path)
        other = differences(results.settings, settings, ('weights', 'model', 'pipeline', 'data', 'library'))
        if other:
            raise ValueError(
                f'{path} holds results of other {", ".join(other)} ({results.settings.get("checkpoint")}, '
                f'{results.settings.get("images")} images): name another file with --out, or remove it'
            )
        results.settings = settings
        return results


def differences(one: Mapping[str, Any], other: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those names whose values are not the same."""
    return [name for name in names if one.get(name) != other.get(name)]
