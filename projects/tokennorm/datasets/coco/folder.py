"""Finds the annotation files and image folders of a dataset in COCO format, in any common layout."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.entries import Content
from tokennorm.datasets.coco.file_names import resolve_file_names
from tokennorm.datasets.image_files import is_image, left_out, list_files
from tokennorm.datasets.programs import ADAPTERS, READERS, Reader
from tokennorm.datasets.programs.unread import check_known, tables
from tokennorm.datasets.splits import (
    SPLIT_NAMES,
    SPLIT_WORDS,
    SPLITS,
    CocoSplit,
    no_garbage_collection,
    normalized_splits,
)
from tokennorm.findings import reports
from tokennorm.messages import shorten

_PLAIN_WORDS = {'instances', 'annotations', 'annotation', 'coco', 'labels', 'dataset', 'data'}  # name no split


class NotCocoError(ValueError):
    """A JSON file that is not COCO's."""


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
    readers = _readers(root, files)
    candidates = {path: _split_of(path.relative_to(root)) for path in readers}
    chosen = {}
    for name in SPLITS:
        if path := _plainest([(words, path) for path, (split, words) in candidates.items() if split == name], name):
            chosen[name] = path
    for path, reader in readers.items():  # one file of all splits
        if reader is not None:
            chosen = {split: path for split in reader.splits(path) if split} | chosen
    chosen = {name: chosen[name] for name in SPLITS if name in chosen}

    def read() -> dict[str, tuple[Content, Path, str]]:
        found = read_annotations(chosen, root, files)
        first, *_ = next(iter(found.values()), ({},))
        if first.get('annotations') and found.get('test', ({},))[0].get('annotations') == []:
            del found['test']
        return {
            name: (content, folder, str(chosen[name]))
            for name, (content, folder) in found.items()
            if 'annotations' in content
        }

    contents = (path for path in chosen.values() if path.is_file())
    splits = normalized_splits(root, chosen, read, chosen, files, contents)
    if chosen.keys() == splits.keys():
        _report_unlisted(splits, files)
    for name in needed or (() if splits else SPLITS):
        if name not in splits:
            raise _without_split(name, root, files, candidates)
    return splits


def _readers(root: Path, files: Sequence[Path]) -> dict[Path, Reader | None]:
    """The files and folders that can hold the annotations of many images, with their readers; None for COCO's JSON."""
    near = [path for path in files if len(path.parts) - len(root.parts) <= 3]  # down to the second level
    found: dict[Path, Reader | None] = {path: None for path in near if path.suffix.lower() == '.json'}
    return found | {path: reader for reader in READERS for path in reader.find(near, files)}


def _without_split(name: str, root: Path, files: Sequence[Path], candidates: Iterable[Path]) -> FileNotFoundError:
    """The error for a split without a file; raises another one for files of formats that are not read."""
    for path in candidates:
        check_known(path)
    found = sorted(str(path.relative_to(root)) for path in candidates)
    text = (
        f'{root} has no annotation file for {name}, such as annotations/{name}.json, instances_{name}2017.json '
        f'or {name}/_annotations.coco.json. Its annotation files down to the second level: '
        f'{shorten(found) or "none"}. `tokennorm split FILE` divides one file without splits'
    )
    if not found and (others := [str(path.relative_to(root)) for path in tables(files)]):
        text += f'. Tables are not read ({shorten(others, 3)}): convert them to COCO, YOLO or VOC'
    return FileNotFoundError(text)


def read_annotations(paths: Mapping[str, Path], root: Path, files: Sequence[Path]) -> dict[str, tuple[Content, Path]]:
    """Reads the annotation files of splits, of any format for many images.

    Returns the content of each, and the folder of its images. The names of the images are those of files, relative to
    that folder, where these are found.
    """
    known = _readers(root, files)
    readers = {split: known.get(path) for split, path in paths.items()}
    contents = {
        split: read_coco_file(path, with_annotations=split != 'test')
        if (reader := readers[split]) is None
        else {**reader.read(path, split, None), 'tokennorm': dict(format=reader.format)}
        for split, path in paths.items()
    }
    written, found = contents, dict[str, tuple[Content, Path]]()
    for adapt in ADAPTERS:
        contents = adapt(contents)
    for split, content in contents.items():
        if (reader := readers[split]) is None:
            _check_category_ids(content, split)
            folder = _image_dir(content, paths[split], split, root, files)
        else:
            folder = root
        is_other = partial(_is_of_other_split, split, root)
        images = resolve_file_names(content['images'], folder, files, is_other, split if reader is None else '')
        if reader is not None and reader.needs_images and images:  # they are in one folder
            content = reader.read(paths[split], split, root / Path(images[0]['file_name']).parent)
            content['tokennorm'] = dict(format=reader.format)
            images = resolve_file_names(content['images'], folder, files, is_other)
        if others := left_out(file for file in files if str(file).startswith(f'{folder}{os.sep}')):
            reports('unread-files', split, f'files of formats that are not read in {folder}: {others}')
        if images is not written[split]['images'] or content is not written[split]:
            content = {**content, 'images': images, 'tokennorm': content.get('tokennorm', {})}
        found[split] = content, folder
    _unite_classes([found[split][0] for split, reader in readers.items() if reader is not None])
    return found


def _is_of_other_split(split: str, root: Path, image: Path) -> bool:
    return bool(splits_in(image.parent.relative_to(root)) & (SPLIT_NAMES.keys() - {split}))


def _unite_classes(contents: Sequence[Content]) -> None:
    """Gives all splits the classes of each, for formats that name only those with an object."""
    names = dict.fromkeys(one['name'] for content in contents for one in content['categories'])
    for content in contents:
        ids = {one['name']: one['id'] for one in content['categories']}
        more = enumerate((name for name in names if name not in ids), max(ids.values(), default=0) + 1)
        content['categories'] = [*content['categories'], *(dict(id=i, name=name) for i, name in more)]


def _report_unlisted(splits: Mapping[str, CocoSplit], files: Sequence[Path]) -> None:
    """Reports images that are in a folder of listed images, and not listed themselves, unless some were left out."""
    codes = {one.code for split in splits.values() for one in split.findings}
    names = [
        (split.image_dir, image.get('file_name')) for split in splits.values() for image in split.content['images']
    ]
    used = {os.path.normpath(folder / name) for folder, name in names if isinstance(name, str)}
    kinds = set(map(_folder_and_suffix, used))  # others may be masks
    others = {os.path.normpath(path) for path in files if is_image(path)} - used
    unlisted = sorted(os.path.basename(path) for path in others if _folder_and_suffix(path) in kinds)
    if unlisted and not codes & {'narrow-image', 'unlabeled-subset'}:
        text = f'images next to others that the annotation files of {" and ".join(splits)} do not list'
        reports('unlisted-image', next(iter(splits)), text, unlisted)


def _folder_and_suffix(path: str) -> tuple[str, str]:
    return os.path.dirname(path), os.path.splitext(path)[1].lower()


def _check_category_ids(content: Content, split: str) -> None:
    """Reports annotations whose categories count from 0, and `categories` from 1, or the reverse."""
    used = {one.get('category_id') for one in content.get('annotations', ()) if type(one.get('category_id')) is int}
    listed = {one.get('id') for one in content['categories'] if type(one.get('id')) is int}
    for shift in (1, -1) if used - listed else ():
        if {one + shift for one in used} <= listed:
            text = (
                f'category_id of the annotations is {min(used)} to {max(used)}, but the ids of the categories are '
                f'{min(listed)} to {max(listed)}: add {shift} to each category_id'
            )
            reports('shifted-category-ids', split, text)


@no_garbage_collection()
def read_coco_file(path: Path, with_annotations: bool = True) -> dict[str, Any]:
    """Reads a COCO annotation file: an object with the lists images, annotations and categories, each of objects."""
    try:
        content = json.loads(path.read_bytes())  # UTF-8 or UTF-16, with or without a mark
    except OSError as error:
        raise ValueError(f'{path} cannot be read: {error.strerror}') from error
    except (ValueError, RecursionError) as error:
        reason = error if path.stat().st_size else 'the file is empty'
        if isinstance(error, UnicodeDecodeError):
            reason = f'{error}. Save it as UTF-8'
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


def _words(name: str) -> list[str]:
    return re.findall('[a-z]+', name.lower())


def splits_in(path: Path) -> set[str]:
    """Returns the splits that the parts of a relative path are named after."""
    return {SPLIT_WORDS[word] for word in _words(str(path)) if word in SPLIT_WORDS}


def _split_of(path: Path) -> tuple[str | None, int]:
    """The split that a relative path names, or None, and how far the file name is from naming it alone."""
    words = _words(path.stem)
    extra = 2 * sum(word not in SPLIT_WORDS and word not in _PLAIN_WORDS for word in words)
    extra += 'labels' in words  # which may be those of whole images, beside `instances`
    parts = (splits_in(Path(part)) for part in (path.stem, *reversed(path.parts[:-1])))
    named = next(filter(None, parts), set())
    return named.pop() if len(named) == 1 else None, extra


def _plainest(candidates: list[tuple[int, Path]], name: str) -> Path | None:
    """The file with the fewest other words in its name; None without candidates."""
    fewest = min((words for words, _ in candidates), default=0)
    best = [path for words, path in candidates if words == fewest]
    if len(best) > 1:
        for path in best:
            check_known(path)
        raise ValueError(
            f'{shorten(list(map(str, best)), 3)} match {name} equally well: name the folder of one dataset, or rename '
            f'the file that is meant to {name}.json'
        )
    return best[0] if best else None


def _image_dir(content: Content, ann_file: Path, split: str, root: Path, files: Sequence[Path]) -> Path:
    """The folder, down to the second level, that has most of the first 50 images; reports others that may be meant.

    Ties are resolved in this order: a folder that is not named after another split, nor inside such a folder; a folder
    named after this split; the folder nearest to the annotation file; the shortest path.
    """
    names = [image['file_name'] for image in content['images'] if isinstance(image.get('file_name'), str)][:50]
    names = [name for name in names if not os.path.isabs(name)]  # which every folder would have
    near = {Path(*folder.parts[: len(root.parts) + 2]) for folder in {path.parent for path in files}}
    folders = sorted({root, *near, *(folder.parent for folder in near if folder != root)})

    def rank(folder: Path) -> tuple[int, bool, bool, int, int]:
        named = splits_in(folder.relative_to(root))
        shared = len(Path(os.path.commonpath([folder, ann_file])).parts)
        found = sum(os.path.isfile(folder / name) for name in names)
        return found, named <= {split}, split in named, shared, -len(folder.parts)

    best = max([ann_file.parent, *folders], key=rank)
    if not rank(best)[0]:  # no image at all: a rule names the missing files
        return root
    others = [one for one in folders if one != best and rank(one)[:3] == rank(best)[:3]]
    if others and best != ann_file.parent:
        text = f'several folders have images of the listed names: those of {best} are used, not of others'
        reports('ambiguous-folder', split, text, map(str, others))
    return best
