"""Adds the table of detectors and commands to the page `reference/detectors`, from reference/detectors.yml."""

from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx

TABLE = Path(__file__).resolve().parents[1] / 'reference' / 'detectors.yml'


def table_text(table: dict[str, Any]) -> str:
    """Returns the table and the list of errors, to which its numbers refer, as Markdown."""
    columns, numbers = table['columns'], dict[str, int]()
    lines = [f'| | {" | ".join(columns.values())} |', f'|---{"|---" * len(columns)}|']
    for name, row in table['rows'].items():
        errors = [row.get(column) for column in columns]
        cells = [f'[{numbers.setdefault(error, len(numbers) + 1)}](#errors)' if error else 'yes' for error in errors]
        lines.append(f'| {name} | {" | ".join(cells)} |')
    configs = [f'- {name}: `{row["config"]}`' for name, row in table['rows'].items()]
    errors = [f'{number}. {error}' for error, number in numbers.items()]
    return '\n'.join([*lines, '\n## Errors\n', *errors, '\n## Configs\n', *configs, ''])


def _add_table(_: Sphinx, name: str, source: list[str]) -> None:
    if name == 'reference/detectors':
        source[0] += f'\n{table_text(yaml.safe_load(TABLE.read_text(encoding="utf-8")))}'


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('source-read', _add_table)
    return dict(parallel_read_safe=True)
