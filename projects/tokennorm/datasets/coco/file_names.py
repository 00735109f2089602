"""Finds the image files that an annotation file names with other folders, separators or cases."""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tokennorm.datasets.image_files import is_image


def find_files(paths: Sequence[str], files: Iterable[Path]) -> dict[str, Path]:
    """Returns files for those of the paths that do not exist, where one is meant.

    A path is compared with the image files from its end: the file that shares most of the last parts is meant, if it is
    one file, and among several one that has no other parts. A file that several paths mean is none of theirs.
    """
    missing = [path for path in paths if not os.path.isfile(path)]
    if not missing:
        return {}
    found = match_names(missing, filter(is_image, files))
    used = {os.path.abspath(path) for path in paths}
    return {path: file for path, file in found.items() if os.path.abspath(file) not in used}


def match_names(names: Iterable[str], files: Iterable[Path]) -> dict[str, Path]:
    """Returns the file that each name means, as `find_files` does, of those that need not exist."""
    by_name = defaultdict(list)
    for file in files:
        by_name[''.join(_parts(file.name)[:1])].append(file)
    found = {name: file for name in names if (file := _nearest(name, by_name)) is not None}
    meant = Counter(map(os.path.abspath, found.values()))
    return {name: file for name, file in found.items() if meant[os.path.abspath(file)] == 1}


def _nearest(path: str, by_name: dict[str, list[Path]]) -> Path | None:
    _, mark, stored = path.rpartition('?d=')  # of Label Studio's local storage
    forms = [unquote(stored), path] if mark else [path, unquote(path)]
    fits = defaultdict[Path, tuple[Any, ...]](tuple)
    for place, form in enumerate(dict.fromkeys(forms)):
        parts = _parts(form)
        if parts and parts[0] not in by_name:
            parts[0] = re.sub('^[0-9a-f]{8}(-|__)', '', parts[0])  # of its uploads and downloads
        for file in by_name.get(parts[0], ()) if parts else ():
            own = _parts(str(file))
            count = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(parts, own, strict=False))))
            fit = path == str(file), count, count == len(own), form.endswith(str(file)), -place
            fits[file] = max(fits[file], fit)
    top = max(fits.values(), default=())
    best = [file for file, fit in fits.items() if fit == top]
    return best[0] if len(best) == 1 else None


def _parts(path: str) -> list[str]:
    """The parts of a path from its end, without case, and with accents as one character: macOS separates them."""
    folded = unicodedata.normalize('NFC', path).lower()
    return [part for part in re.split(r'[\\/]+', folded) if part not in ('', '.', '..')][::-1]
