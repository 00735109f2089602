"""Entries and values of annotation files in messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from tokennorm.messages import shorten

_LONGEST_NAME = 200  # characters


def list_items(items: Iterable[str], most: int = 5) -> str:
    """The count if there are several, with the first few and how many more in parentheses."""
    items = list(items)
    return f'{len(items)} ({shorten(items, most)})' if len(items) > 1 else shorten(items)


def brief(value: Any, most: int | None = 40, quote: bool = True) -> str:
    """The first characters of a value's `repr`; a string's own characters without `quote`."""
    try:
        return (repr(value) if quote or not isinstance(value, str) else value)[:most]
    except RecursionError:
        return 'nested too deeply'


def entry_label(entry: Mapping[str, Any], index: int, image_names: Mapping[Any, Any]) -> str:
    """An entry's file name or name, or else its id and the file of its image."""
    for key in ('file_name', 'name'):
        if isinstance(entry.get(key), str) and entry[key]:
            return entry[key][:_LONGEST_NAME]
    image_id = entry.get('image_id')
    name = image_names.get(image_id) if isinstance(image_id, int | str) else None
    of_image = f' of {name}' if isinstance(name, str) and name else ''
    return f'id {brief(entry["id"], quote=False) if "id" in entry else f"missing, entry {index}"}{of_image}'
