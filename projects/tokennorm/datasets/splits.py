"""The splits of a dataset in canonical COCO form, kept in the cache directory of `tokennorm.files`."""

import gc
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.files import cache_directory, write_atomically
from tokennorm.messages import user_errors

SPLIT_NAMES = dict(  # of folders, files and keys, the usual one first
    train=('train', 'training'), val=('val', 'valid', 'validation', 'dev'), test=('test', 'testing')
)
SPLITS = tuple(SPLIT_NAMES)
SPLIT_WORDS = {word: split for split, words in SPLIT_NAMES.items() for word in words}


@dataclass(frozen=True)
class CocoSplit:
    """One split of a dataset, in canonical COCO form."""

    name: str  # 'train', 'val' or 'test'
    ann_file: Path  # the annotation file of the user if it is canonical, else the normalized one in the cache
    image_dir: Path  # the folder of the images; file names are relative to it
    content: Mapping[str, Any]  # the parsed annotation file

    @property
    def source(self) -> str:
        """The annotations of the user, for messages."""
        return self.content.get('tokennorm', {}).get('source', str(self.ann_file))

    @property
    def notes(self) -> list[str]:
        """What was changed to bring the annotations into canonical form, one line each."""
        return self.content.get('tokennorm', {}).get('notes', [])

    def objects_by_class(self) -> Counter[str]:
        """Returns the number of objects of each class, in the order of the file's categories, without crowds."""
        names = {category['id']: category['name'] for category in self.content['categories']}
        counts = Counter({name: 0 for name in names.values()})
        objects = (one for one in self.content['annotations'] if not one.get('iscrowd'))
        counts.update(names[one['category_id']] for one in objects if one['category_id'] in names)
        return counts


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Searching the growing content again and again takes longer than reading it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@no_garbage_collection()
def normalized_splits(
    root: Path,
    names: Iterable[str],
    read: Callable[[], Mapping[str, tuple[dict[str, Any], Path, str]]],
    facts: Any,
    files: Iterable[Path],
    contents: Iterable[Path] = (),
) -> dict[str, CocoSplit]:
    """Returns those of the splits `names` that a dataset has, in canonical form, and keeps them in the cache.

    `read` returns the COCO content, the image folder and the source, for messages, of each split. It is called if the
    `facts`, a size or time of `files` or the bytes of `contents` have changed.
    """
    key = _fingerprint((str(root.resolve()), facts), files, contents)
    targets = {name: cache_directory() / 'datasets' / root.resolve().name / f'{name}-{key}.json' for name in names}
    if targets and all(path.is_file() for path in targets.values()):
        kept = {name: json.loads(path.read_bytes()) for name, path in targets.items()}
        return {
            name: CocoSplit(name, targets[name], Path(content['tokennorm']['images']), content)
            for name, content in kept.items()
            if content  # of a test split without annotations null is kept
        }
    if not (found := read()):
        return {}
    splits = {}
    contents_of = {name: content for name, (content, _, _) in found.items()}
    for name, content in normalize(contents_of, {name: folder for name, (_, folder, _) in found.items()}).items():
        _, folder, source = found[name]
        if is_changed := 'tokennorm' in content:
            content['tokennorm'] |= dict(source=source, images=str(folder))
            _write(targets[name], content)
        splits[name] = CocoSplit(name, targets[name] if is_changed else Path(source), folder, content)
    for name in targets.keys() - found.keys():
        _write(targets[name], None)
    return splits


@cache
def _code() -> bytes:
    """The code of the readers: what an older one wrote is converted again."""
    return b''.join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob('*.py')))


def _fingerprint(facts: Any, files: Iterable[Path], contents: Iterable[Path]) -> str:
    digest = hashlib.blake2b(repr(facts).encode() + _code(), digest_size=8)
    for path in files:
        with suppress(OSError):  # a link that leads nowhere
            status = os.stat(path)
            digest.update(repr((str(path), status.st_size, status.st_mtime_ns)).encode())
    for path in contents:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, content: Any) -> None:
    with user_errors(OSError, where='the cache directory, which TOKENNORM_CACHE sets: '):
        write_atomically(path, json.dumps(content).encode())
