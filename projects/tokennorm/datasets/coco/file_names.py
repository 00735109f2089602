"""Finds the image files that an annotation file names with other folders, separators or without a suffix."""

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tokennorm.datasets.image_files import is_image
from tokennorm.findings import reports


def resolve_file_names(
    images: list[dict[str, Any]],
    folder: Path,
    files: Sequence[Path],
    is_other: Callable[[Path], bool],
    split: str = '',
) -> list[dict[str, Any]]:
    """Returns the images with names relative to `folder`; reports names that were changed, in a split.

    A name that is not found is compared with the image files from its end: the file that shares most of the last parts
    is meant, if it is one file. `is_other` excludes files of other splits. Names of which several mean one file stay,
    and the inspection names them as missing.
    """
    known = set(map(str, files))
    paths = [os.path.join(folder, one['file_name']) if isinstance(one.get('file_name'), str) else '' for one in images]
    missing = [i for i, path in enumerate(paths) if path and path not in known and not os.path.isfile(path)]
    if not missing:
        return images
    index = defaultdict(list)
    for path in files:
        if not is_image(path) or is_other(path):
            continue
        for key in {_folded(path.name), _folded(path.stem)}:
            index[key].append(path)
    meant: dict[Path, set[str]] = defaultdict(set)
    for i in set(range(len(paths))) - set(missing):
        meant[Path(paths[i])].add(str(images[i].get('file_name')))
    found = {}
    for i in missing:
        if (path := _find(images[i]['file_name'], index)) is not None:
            found[i] = path
            meant[path].add(images[i]['file_name'])
    found = {i: os.path.relpath(path, folder) for i, path in found.items() if len(meant[path]) == 1}
    renamed = [f'{images[i]["file_name"]} as {name}' for i, name in found.items()]
    if not found or (split and not reports('renamed-file', split, items=renamed)):
        return images
    return [{**one, 'file_name': found[i]} if i in found else one for i, one in enumerate(images)]


def _find(name: str, index: dict[str, list[Path]]) -> Path | None:
    parts = _parts(unquote(name.rpartition('?d=')[2]))
    shared = {}
    for path in index.get(parts[0], ()) if parts else ():
        folders = zip(parts[1:], _parts(str(path))[1:], strict=False)  # the names are equal, but for their suffixes
        shared[path] = len(list(takewhile(lambda pair: pair[0] == pair[1], folders)))
    best = [path for path, count in shared.items() if count == max(shared.values())]
    return best[0] if len(best) == 1 else None


def _parts(name: str) -> list[str]:
    """The parts of a path, from its end."""
    return [part for part in re.split(r'[\\/]+', _folded(name)) if part not in ('', '.', '..')][::-1]


def _folded(name: str) -> str:
    """Without case, and with accents as one character: macOS separates them."""
    return unicodedata.normalize('NFC', name).lower()
