"""The splits of a dataset in canonical COCO form, kept in the cache directory of `tokennorm.files`."""

import gc
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.columns import Columns
from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.files import cache_directory, write_atomically
from tokennorm.findings import RULES, Finding, Findings, current, judging, reports
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
        """What was found and changed when the annotations were read, one line each."""
        return [one.text for one in self.findings]

    @property
    def findings(self) -> list[Finding]:
        """What was found when the annotations were read."""
        return [Finding(**one) for one in self.content.get('tokennorm', {}).get('findings', ())]

    @cached_property
    def columns(self) -> Columns:
        """The annotations as arrays."""
        return Columns(self.name, self.content)

    def objects_by_class(self) -> Counter[str]:
        """Returns the number of objects of each class, in the order of the file's categories, without crowds."""
        return self.columns.objects_by_class


@contextmanager
def recorded() -> Iterator[Findings]:
    """Keeps what is reported within the context, for `repeat`. It is not judged yet.

    Rules that change what is read are in force as in the command; all others are.
    """
    with judging(Findings(code for code in current().allowed if RULES[code].changes)) as findings:
        yield findings


def repeat(findings: Iterable[Finding]) -> None:
    """Reports what was recorded."""
    for one in findings:
        reports(one.code, one.where, one.text, one.items)


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
    allowed = sorted(code for code in current().allowed if RULES[code].changes)
    key = _fingerprint((str(root.resolve()), facts, allowed), files, contents)
    targets = {name: cache_directory() / 'datasets' / root.resolve().name / f'{name}-{key}.json' for name in names}
    kept = None
    if targets and all(path.is_file() for path in targets.values()):
        with suppress(ValueError):  # a damaged file is written again
            kept = {name: json.loads(path.read_bytes()) for name, path in targets.items()}
    if kept is not None:
        splits = {
            name: CocoSplit(name, targets[name], Path(content['tokennorm']['images']), content)
            for name, content in kept.items()
            if content  # of a test split without annotations null is kept
        }
    else:
        splits = _read(targets, read)
    for split in splits.values():
        repeat(split.findings)
    return splits


def _read(
    targets: Mapping[str, Path], read: Callable[[], Mapping[str, tuple[dict[str, Any], Path, str]]]
) -> dict[str, CocoSplit]:
    with recorded() as findings:
        if not (found := read()):
            return {}
        folders = {name: folder for name, (_, folder, _) in found.items()}
        contents = normalize({name: content for name, (content, _, _) in found.items()}, folders)
    splits = {}
    for name, content in contents.items():
        _, folder, source = found[name]
        of_split = [one.as_dict() for one in findings if one.where == name]
        of_split += [one.as_dict() for one in findings if not one.where and not splits]
        if of_split or 'tokennorm' in content or content is not found[name][0]:
            facts = dict(source=source, images=str(folder), findings=of_split)
            content = {**content, 'tokennorm': content.get('tokennorm', {}) | facts}
            _write(targets[name], content)
            splits[name] = CocoSplit(name, targets[name], folder, content)
        else:
            splits[name] = CocoSplit(name, Path(source), folder, content)
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
