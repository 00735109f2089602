"""File of a robustness evaluation: its settings, and the metrics of each corruption, written when it is done."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from torch import Tensor, uint8

from tokennorm.base.files import write_atomically

CLEAN = ('clean', 0)
Cell = tuple[str, int]
"""A corruption and its severity, or `CLEAN`."""


def cell_name(cell: Cell) -> str:
    """Returns the name of a cell in files and printed lines, such as 'gaussian_noise 1'."""
    return '{} {}'.format(*cell)


def digest(*parts: Any) -> str:
    """Returns 12 hexadecimal digits that identify the arguments: state dicts of tensors, or anything with a `repr`."""
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
    """Metrics of a model per corruption and severity, in a JSON file.

    Args:
        path: The file.
        settings: Everything that the metrics depend on. Results with another `weights`, `model`, `pipeline`, `data` or
            `library` cannot be mixed.
        cells: 'gaussian_noise 1' -> metrics, by the evaluator's names.
        summary: Values of the report.
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
        """Returns one metric of a cell."""
        return self.cells[cell_name(cell)][metric]

    def table(self, cells: Iterable[Cell], metric: str) -> dict[str, dict[int, float]]:
        """Returns corruption -> severity -> metric."""
        table: dict[str, dict[int, float]] = {}
        for corruption, severity in cells:
            table.setdefault(corruption, {})[severity] = self.get((corruption, severity), metric)
        return table

    def write(self) -> None:
        """Writes the file atomically."""
        content = dict(settings=self.settings, cells=self.cells, summary=self.summary)
        write_atomically(self.path, json.dumps(content, indent=1).encode())

    @classmethod
    def read(cls, path: Path) -> 'Results':
        """Reads a file."""
        try:
            content = json.loads(path.read_text(encoding='utf-8'))
            return cls(path, dict(content['settings']), dict(content['cells']), dict(content['summary']))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f'{path} is not a results file of robustness/run.py ({type(error).__name__}: {error})'
            ) from error

    @classmethod
    def resume(cls, path: Path, settings: dict[str, Any]) -> 'Results':
        """Reads the results of a file, or begins new ones if it does not exist."""
        if not path.exists():
            return cls(path, settings)
        results = cls.read(path)
        other = differences(results.settings, settings, ('weights', 'model', 'pipeline', 'data', 'library'))
        if other:
            raise ValueError(
                f'{path} has results of other {", ".join(other)} ({results.settings.get("checkpoint")}, '
                f'{results.settings.get("images")} images): name another file with --out, or remove it'
            )
        results.settings = settings
        return results


def differences(one: Mapping[str, Any], other: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Returns the names whose values differ."""
    return [name for name in names if one.get(name) != other.get(name)]
