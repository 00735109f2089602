"""Reads annotation files of other programs as COCO content, with hotcoco's converters."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.entries import Content
from tokennorm.findings import reports

_HEAD = 4000  # characters that tell a format


@dataclass(frozen=True)
class Reader:
    """A format of annotation files, or folders, of many images.

    Args:
        format: Its name.
        find: Chooses its files among the files down to the second level, which come first, and all files.
        read: Reads a file for a split, with the folder of its images where that is known.
        splits: The split that the file names for each image, if it names several.
        needs_images: The file is read a second time, once the folder of its images was found.
    """

    format: str
    find: Callable[[Sequence[Path], Sequence[Path]], list[Path]]
    read: Callable[[Path, str, Path | None], Content]
    splits: Callable[[Path], list[str | None]] = lambda path: []
    needs_images: bool = False


def convert(split: str, path: Path, converter: Callable[..., Any], *args: Any, **options: Any) -> Content:
    """Returns what a converter of hotcoco makes of a file, and reports what it leaves out."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        try:
            content = dict(converter(*args, **options).dataset)
        except (ValueError, OSError) as error:
            raise ValueError(f'{path} cannot be read: {error}; export the annotations again') from error
    for warning in said:
        reports('unread-shape', split, str(warning.message).removeprefix('hotcoco: '))
    return content


def head(path: Path) -> str:
    """Returns the first characters of a text file, '' for a file that cannot be read."""
    try:
        with path.open(encoding='utf-8-sig', errors='replace') as file:
            return file.read(_HEAD)
    except OSError:
        return ''
