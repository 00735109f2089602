"""Normalized annotation files in the cache directory of `tokennorm.files`, named by what they were made from."""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokennorm.files import cache_directory, write_atomically
from tokennorm.messages import user_errors
from tokennorm.version import __version__


def fingerprint(facts: Any, files: Iterable[Path] = (), contents: Iterable[Path] = ()) -> str:
    """Changes with the facts, the names, sizes and times of files, the contents, and this package's version."""
    digest = hashlib.blake2b(repr((__version__, facts)).encode(), digest_size=8)
    for path in files:
        with suppress(OSError):  # a link that leads nowhere
            status = os.stat(path)
            digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
    for path in contents:
        with path.open('rb') as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def cached_file(root: Path, name: str, key: str) -> Path:
    """The path of a split's file, which may not exist yet."""
    return cache_directory() / 'datasets' / root.resolve().name / f'{name}-{key}.json'


def write_cached(path: Path, content: Any) -> None:
    """Writes a normalized file."""
    with user_errors(OSError, where='the cache directory, which TOKENNORM_CACHE sets: '):
        write_atomically(path, json.dumps(content).encode())
