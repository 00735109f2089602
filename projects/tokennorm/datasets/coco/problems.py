"""Problems of a dataset, and how entries and values are named in messages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokennorm.messages import shorten

_LONGEST_NAME = 200  # characters


@dataclass
class Inspection:
    """Problems of a dataset, and its counts."""

    # problems that would stop a training run or make its evaluation wrong, one line each
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # problems that leave data out or make its use doubtful
    table: str = ''  # names and counts, Markdown
    most_objects: int = 0  # number of objects in the image that has most
    # problems that would stop training on masks, or make their evaluation wrong; boxes are not affected
    mask_errors: list[str] = field(default_factory=list)
    entries_are_valid: bool = True  # whether all entries have their keys; otherwise nothing else was inspected

    def __str__(self) -> str:
        return self.text()

    def text(self, with_masks: bool = True) -> str:
        """Returns the table and all problems, without those of masks for a detector of boxes."""
        masks = [f'not usable for masks: {line}' for line in self.mask_errors if with_masks]
        lines = [f'ERROR: {line}' for line in self.errors] + [f'warning: {line}' for line in self.warnings]
        text = '\n'.join([*([self.table, ''] if self.table else []), *(lines or ['No problems found.']), *masks])
        return text.encode('utf-8', 'backslashreplace').decode()  # JSON may hold characters that no terminal prints


def grouped(split: str, problems: Mapping[str, list[str]]) -> list[str]:
    """Returns one line per problem, with the entries that have it."""
    return [f'{split}: {what}: {list_items(labels)}' for what, labels in problems.items() if labels]


def list_items(items: Iterable[str], most: int = 5) -> str:
    """The count if there are several, with the first few and how many more in parentheses."""
    items = list(items)
    return f'{len(items)} ({shorten(items, most)})' if len(items) > 1 else shorten(items)


def entry_label(entry: Mapping[str, Any], index: int, image_names: Mapping[Any, Any]) -> str:
    """An entry's file name or name, or else its id and the file of its image."""
    if name := entry.get('file_name') or entry.get('name'):
        return str(name)[:_LONGEST_NAME]
    image_id = entry.get('image_id')
    image = image_names.get(image_id) if isinstance(image_id, int | str) else None
    return f'id {entry.get("id", f"missing, entry {index}")!s:.40}' + (f' of {image}' if image else '')
