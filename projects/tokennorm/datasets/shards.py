"""Images for a classifier in WebDataset shards: tar files with KEY.jpg and KEY.cls, and an index.

A WebDataset is read from beginning to end. The index has the place of every image instead, so that a sample is one read
at an offset: samplers, their order and exact resumption are those of a folder of images.
"""

import io
import json
import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from mmengine.fileio import LocalBackend, register_backend

from tokennorm.datasets.image_files import IMAGE_SUFFIXES
from tokennorm.files import TEMPORARY, write_atomically
from tokennorm.messages import shorten

INDEX = 'index.json'
SCHEME = 'shard://'


def write_shards(samples: Iterable[tuple[str, int]], classes: Sequence[str], out: Path, shard_bytes: float) -> None:
    """Writes images and labels into OUT/000000.tar, OUT/000001.tar, ..., and the index."""
    if out.exists():
        raise FileExistsError(f'{out} exists: name a new folder')
    unfinished = out.with_name(out.name + TEMPORARY)  # of an interruption, or of this call
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    rest = enumerate(samples)
    for shard, first in enumerate(rest):
        with tarfile.open(unfinished / f'{shard:06d}.tar', 'w') as tar:
            for number, (path, label) in chain([first], rest):
                image = Path(path)
                for suffix, content in ((image.suffix.lower(), image.read_bytes()), ('.cls', b'%d' % label)):
                    member = tarfile.TarInfo(f'{number:08d}{suffix}')
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                if tar.offset >= shard_bytes:
                    break
    write_index(unfinished, classes)
    unfinished.rename(out)


def write_index(folder: Path, classes: Sequence[str] | None = None) -> None:
    """Writes the index of all shards, uncompressed tar files, of a folder, of any program that writes WebDatasets.

    The classes are the names of the labels; None for the numbers.
    """
    paths = sorted(folder.glob('*.tar'))
    shards = {path.name: dict(bytes=path.stat().st_size, samples=_samples(path)) for path in paths}
    labels = [label for shard in shards.values() for *_, label in shard['samples']]
    if not labels:
        raise ValueError(f'{folder} has no *.tar with images ({", ".join(IMAGE_SUFFIXES)})')
    classes = [str(label) for label in range(max(labels) + 1)] if classes is None else list(classes)
    wrong = next((label for label in labels if not 0 <= label < len(classes)), None)
    if wrong is not None:
        raise ValueError(f'{folder} has label {wrong}, but there are {len(classes)} class names, counted from 0')
    write_atomically(folder / INDEX, json.dumps(dict(classes=classes, shards=shards)).encode())


def _samples(path: Path) -> list[tuple[str, int, int, int]]:
    """Name, offset, size and label of each image of a shard. A key ends at the first dot of the file's name."""
    images, labels = {}, {}
    try:
        with tarfile.open(path, 'r:') as tar:
            for member in tar:
                folder, _, name = member.name.rpartition('/')
                key, _, suffix = name.partition('.')
                if suffix == 'cls':
                    labels[folder, key] = int(tar.extractfile(member).read())
                elif f'.{suffix.lower()}' in IMAGE_SUFFIXES:
                    images[folder, key] = member.name, member.offset_data, member.size
    except (tarfile.TarError, ValueError) as error:
        raise ValueError(f'{path} is not a complete, uncompressed WebDataset shard ({error}): copy it again') from error
    unlabeled = [place[0] for key, place in images.items() if key not in labels]
    if unlabeled:
        raise ValueError(f'{path}: {unlabeled[0]} has no label: the shard needs a file KEY.cls with its number')
    return [(*place, labels[key]) for key, place in images.items()]


def read_index(folder: str | Path) -> dict[str, Any]:
    """Returns the index of a folder: `classes`, and `shards` with `bytes` and `samples` by file name.

    Shards that are missing, have another size, or are not in the index raise `ValueError`.
    """
    path = Path(folder, INDEX)
    if not path.is_file():
        raise FileNotFoundError(f'{path} not found: write it with `python tools/write_shards.py {folder}`')
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
            f'`python tools/write_shards.py {folder}`, and --classes if the classes have names'
        )
    return index


def count_classes(folder: str | Path) -> dict[str, int]:
    """Returns the number of images per class, for all classes of the index."""
    index = read_index(folder)
    counts = Counter(label for shard in index['shards'].values() for *_, label in shard['samples'])
    return {name: counts[label] for label, name in enumerate(index['classes'])}


def path_of(shard: Path, name: str, offset: int, size: int) -> str:
    """Returns the path of an image in a shard, from which mmengine reads it: `shard://SHARD.tar?OFFSET+SIZE&NAME`."""
    return f'{SCHEME}{shard}?{offset}+{size}&{name}'


class ShardBackend(LocalBackend):
    """mmengine's file backend for the paths of `path_of`, which are read only."""

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
