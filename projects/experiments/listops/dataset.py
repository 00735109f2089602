"""ListOps files, in the format of Long Range Arena: tab-separated values with the columns Source and Target."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from experiments.listops.grammar import DIGITS, VOCABULARY
from tokennorm.base.files import write_atomically
from tokennorm.registry import DATASETS

COLUMNS = ['Source', 'Target']
_IDS = {token: number for number, token in enumerate(VOCABULARY)}


def write_examples(path: Path, examples: Iterable[tuple[list[str], int]]) -> None:
    """Writes tokens and values. An interruption leaves no file of this name."""
    rows = (f'{" ".join(tokens)}\t{value}\n' for tokens, value in examples)
    write_atomically(path, ('\t'.join(COLUMNS) + '\n' + ''.join(rows)).encode())


def read_examples(path: Path) -> list[tuple[list[str], int]]:
    """Reads tokens and values. Long Range Arena's own files have parentheses too, which mean nothing and are dropped.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a file of another format, with the line.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f'{path} not found; write it with `python projects/experiments/listops/make_data.py {path.parent}`'
        )
    with path.open(encoding='utf-8', newline='') as file:
        header, *rows = csv.reader(file, delimiter='\t')
    if header != COLUMNS or not rows:
        raise ValueError(f'{path} must have the columns {COLUMNS} and at least one example, not {header}')
    found = []
    for line, row in enumerate(rows, 2):
        tokens = [token for token in row[0].split() if token not in '()'] if row else []
        unknown = next((token for token in tokens if token not in _IDS), None)
        if len(row) != 2 or not tokens or unknown or row[1] not in DIGITS:
            raise ValueError(f'{path}, line {line}: expected an expression and its value 0 to 9, found {str(row)[:80]}')
        found.append((tokens, int(row[1])))
    return found


@DATASETS.register_module()
class ListOps(Dataset):
    """Expressions as integers, with their values.

    Args:
        data_root: The folder.
        file: Name of the file in it.
    """

    metainfo = dict(classes=DIGITS)

    def __init__(self, data_root: str, file: str) -> None:
        self.examples = [
            (torch.tensor([_IDS[token] for token in tokens]), torch.tensor(value))
            for tokens, value in read_examples(Path(data_root, file))
        ]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """`inputs`, the places of the tokens in `VOCABULARY` (T,), and `labels`, the value."""
        tokens, value = self.examples[index]
        return dict(inputs=tokens, labels=value)
