"""Finds the annotation files and image folders of a dataset in COCO format, in any common layout."""

import gc
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.datasets.cache import cached_file, fingerprint, write_cached
from tokennorm.datasets.coco.file_names import resolve_file_names
from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.datasets.exports import annotation_files, check_known, read_export
from tokennorm.datasets.image_files import list_files
from tokennorm.messages import shorten

SPLIT_NAMES = dict(  # of folders, files and keys, the usual one first
    train=('train', 'training'), val=('val', 'valid', 'validation', 'dev'), test=('test', 'testing')
)
SPLITS = tuple(SPLIT_NAMES)
SPLIT_WORDS = {word: split for split, words in SPLIT_NAMES.items() for word in words}
_PLAIN_WORDS = {'instances', 'annotations', 'annotation', 'coco', 'labels', 'dataset', 'data'}  # name no split


class NotCocoError(ValueError):
    """A JSON file that is not COCO's."""


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


def find_coco_splits(root: str | Path, needed: Sequence[str] = ('train', 'val')) -> dict[str, CocoSplit]:
    """Finds the splits of a folder: annotation files named after a split, or in a folder named after one.

    Examples are `annotations/instances_train2017.json`, `train.json` and `train/_annotations.coco.json`. CVAT's XML,
    Open Images' CSV and folders of DOTA's labels are read, too. If several files match a split, the file with the
    fewest other words in its name is used. Images may be anywhere in the folder. A test file without annotations, such
    as COCO's own, is not a split. Annotations that are not canonical are normalized into the cache directory.
    """
    root = Path(root)
    if not root.is_dir():
        check_known(root)
        raise FileNotFoundError(f'{root} is not a folder; name the folder of the annotations and images')
    files = list_files(root)
    candidates = {path: _split_of(path.relative_to(root)) for path in annotation_files(root, files)}
    chosen = {}
    for name in SPLITS:
        if path := _plainest([(words, path) for path, (split, words) in candidates.items() if split == name], name):
            chosen[name] = path
    with _no_garbage_collection():
        splits = _read_splits(root, files, chosen)
    for name in needed or (() if splits else SPLITS):
        if name not in splits:
            for path in candidates:
                check_known(path)
            found = sorted(str(path.relative_to(root)) for path in candidates)
            raise FileNotFoundError(
                f'{root} has no annotation file for {name}, such as annotations/{name}.json, instances_{name}2017.json '
                f'or {name}/_annotations.coco.json. Its annotation files down to the second level: '
                f'{shorten(found) or "none"}. `tokennorm split FILE` divides one file without splits'
            )
    return splits


def _read_splits(root: Path, files: list[Path], chosen: Mapping[str, Path]) -> dict[str, CocoSplit]:
    """The splits from the cache directory; otherwise normalized, and written there where that changes something."""
    key = fingerprint((str(root.resolve()), chosen), files, (path for path in chosen.values() if path.is_file()))
    targets = {name: cached_file(root, name, key) for name in chosen}
    if chosen and all(path.is_file() for path in targets.values()):
        read = {name: json.loads(path.read_bytes()) for name, path in targets.items()}
        return {n: CocoSplit(n, targets[n], Path(one['tokennorm']['images']), one) for n, one in read.items()}
    contents, folders = {}, {}
    for name, path in chosen.items():
        content, folder = read_annotations(path, root, files, name)
        if 'annotations' in content:
            contents[name], folders[name] = content, folder
    splits = {}
    for name, content in (normalize(contents, folders) if contents else {}).items():
        ann_file = chosen[name]
        if 'tokennorm' in content:
            content['tokennorm'] |= dict(source=str(ann_file), images=str(folders[name]))
            ann_file = targets[name]
            write_cached(ann_file, content)
        splits[name] = CocoSplit(name, ann_file, folders[name], content)
    return splits


def read_annotations(path: Path, root: Path, files: list[Path], split: str) -> tuple[dict[str, Any], Path]:
    """Reads an annotation file of any format for many images; returns its content and the folder of its images.

    The names of the images are those of files, relative to that folder, where these are found.
    """

    def is_other(image: Path) -> bool:
        return bool(_named_splits(image.parent, root) - {split})

    if path.suffix.lower() == '.json':
        content = read_coco_file(path, with_annotations=split != 'test')
        folder, others = _image_dir(content, path, split, root, _folders(root, files))
        images, notes = resolve_file_names(content['images'], folder, files, is_other)
        if others:
            also = shorten(list(map(str, others)), 3)
            notes.append(f'several folders have images of the listed names: those of {folder} are used, not of {also}')
    else:
        content, folder, notes = read_export(path), root, []
        images, _ = resolve_file_names(content['images'], folder, files, is_other)
        if path.suffix.lower() == '.csv' and images:  # its boxes are fractions of images in one folder
            content = read_export(path, root / Path(images[0]['file_name']).parent)
            images, _ = resolve_file_names(content['images'], folder, files, is_other)
    if notes or any(one is not other for one, other in zip(images, content['images'], strict=True)):
        old = content.get('tokennorm', {}).get('notes', [])
        content = {**content, 'images': images, 'tokennorm': dict(notes=[*old, *notes])}
    return content, folder


def _folders(root: Path, files: list[Path]) -> list[Path]:
    """The folders down to the second level that have files in them or below."""
    depth = len(root.parts)
    parents = {Path(*parent.parts[: depth + 2]) for parent in {path.parent for path in files}}
    return sorted({root, *parents, *(parent.parent for parent in parents if parent != root)})


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """It would search the growing content again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def read_coco_file(path: Path, with_annotations: bool = True) -> dict[str, Any]:
    """Reads a COCO annotation file: an object with the lists images, annotations and categories, each of objects."""
    try:
        with _no_garbage_collection():
            content = json.loads(path.read_bytes())  # UTF-8 or UTF-16, with or without a mark
    except OSError as error:
        raise ValueError(f'{path} cannot be read: {error.strerror}') from error
    except (ValueError, RecursionError) as error:
        reason = error if path.stat().st_size else 'the file is empty'
        raise ValueError(f'{path} cannot be read as JSON: {reason}; export the annotations again') from error
    for key in ('images', 'annotations', 'categories'):
        if key == 'annotations' and not with_annotations and isinstance(content, dict) and key not in content:
            continue
        entries = content.get(key) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            check_known(path)
            raise NotCocoError(f'{path} is not a COCO annotation file: it has no list of objects named {key!r}')
    with path.open('rb') as file:
        if file.read(1) in b'\xef\xfe\xff':  # a mark of its encoding, which mmdet cannot read
            content.setdefault('tokennorm', {})
    return content


def _split_of(path: Path) -> tuple[str | None, int]:
    """The split that a relative path names, or None, and the number of other words in the file name."""
    words = [word for word in re.split(r'[^a-z]+', path.stem.lower()) if word]
    named = [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS]
    extra = sum(word not in SPLIT_WORDS and word not in _PLAIN_WORDS for word in words)
    if named:
        return (named[0], extra) if len(set(named)) == 1 else (None, extra)
    parents = [re.sub(r'[^a-z]+', '', part.lower()) for part in path.parts[:-1]]
    return next((SPLIT_WORDS[part] for part in reversed(parents) if part in SPLIT_WORDS), None), extra


def _plainest(candidates: list[tuple[int, Path]], name: str) -> Path | None:
    """The file with the fewest other words in its name; None without candidates."""
    fewest = min((words for words, _ in candidates), default=0)
    best = [path for words, path in candidates if words == fewest]
    if len(best) > 1:
        check_known(best[0])
        raise ValueError(
            f'{shorten(list(map(str, best)), 3)} match {name} equally well: name the folder of one dataset, or rename '
            f'the file that is meant to {name}.json'
        )
    return best[0] if best else None


def _named_splits(folder: Path, root: Path) -> set[str]:
    """The splits that the folders from the root to `folder` are named after."""
    parts = (re.sub(r'[^a-z]+', '', part.lower()) for part in folder.relative_to(root).parts)
    return {SPLIT_WORDS[part] for part in parts if part in SPLIT_WORDS}


def _image_dir(
    content: Mapping[str, Any], ann_file: Path, split: str, root: Path, folders: list[Path]
) -> tuple[Path, list[Path]]:
    """The folder that has most of the first 50 images, and others that have as many and could be meant.

    Ties are resolved in this order: a folder that is not named after another split, nor inside such a folder; a folder
    named after this split; the folder nearest to the annotation file; the shortest path.
    """
    names = [image['file_name'] for image in content['images'] if isinstance(image.get('file_name'), str)][:50]

    def rank(folder: Path) -> tuple[int, bool, bool, int, int]:
        named = _named_splits(folder, root)
        shared = len(Path(os.path.commonpath([folder, ann_file])).parts)
        found = sum(os.path.isfile(folder / name) for name in names)
        return found, named <= {split}, split in named, shared, -len(folder.parts)

    # If there is no image at all, later checks name the missing files.
    best = max([ann_file.parent, *folders], key=rank)
    if not rank(best)[0]:
        return root, []
    return best, [one for one in folders if one not in (best, ann_file.parent) and rank(one)[:3] == rank(best)[:3]]
