"""Images for a classifier in WebDataset shards: tar files with KEY.jpg and KEY.cls, and an index.

A WebDataset is read from beginning to end. The index has the place of every image instead, so that a sample is one read
at an offset: samplers, their order and exact resumption are those of a folder of images.
"""

import json
import os
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from mmengine.fileio import LocalBackend, register_backend

from tokennorm.base.messages import shorten

INDEX = 'index.json'
WRITE = 'python projects/experiments/imagenet_shards/write_shards.py'
SCHEME = 'shard://'


def read_index(folder: str | Path) -> dict[str, Any]:
    """Returns the index of a folder: `classes`, and `shards` with `bytes` and `samples` by file name.

    Shards that are missing, have another size, or are not in the index raise `ValueError`.
    """
    path = Path(folder, INDEX)
    if not path.is_file():
        raise FileNotFoundError(f'{path} not found: write it with `{WRITE} {folder}`')
    index = json.loads(path.read_bytes())
    for name, shard in index['shards'].items():
        file = Path(folder, name)
        found = f'{file.stat().st_size} bytes' if file.is_file() else 'missing'
        if found != f'{shard["bytes"]} bytes':
            raise ValueError(f'{file} is {found}, expected {shard["bytes"]} bytes by {INDEX}: copy the shard again')
    unlisted = {file.name for file in Path(folder).glob('*.tar')} - index['shards'].keys()
    if unlisted:
        raise ValueError(
            f'{path} does not list {shorten(sorted(unlisted))}: write it again with '
            f'`{WRITE} {folder}`, and --classes if the classes have names'
        )
    return index


def count_classes(folder: str | Path) -> dict[str, int]:
    """Returns the number of images per class, for all classes of the index."""
    index = read_index(folder)
    counts = Counter(label for shard in index['shards'].values() for *_, label in shard['samples'])
    return {name: counts[label] for label, name in enumerate(index['classes'])}


class ShardBackend(LocalBackend):
    """mmengine's file backend for images in shards, `shard://SHARD.tar?OFFSET+SIZE&NAME`, which are read only."""

    def get(self, filepath: str | Path) -> bytes:
        folder, _, rest = str(filepath).removeprefix(SCHEME).partition('.tar?')
        shard = f'{folder}.tar'
        offset, size = map(int, rest.partition('&')[0].split('+'))
        content = os.pread(_open(shard).fileno(), size, offset)
        if len(content) != size:
            raise OSError(f'{shard} ends before byte {offset + size}: copy the shard again')
        return content


@lru_cache(maxsize=256)
def _open(path: str) -> BinaryIO:
    """An open file; `pread` lets processes share it. The file is closed after it leaves the cache."""
    return open(path, 'rb', buffering=0)


register_backend('tokennorm.shard', ShardBackend, prefixes=SCHEME.removesuffix('://'), force=True)
