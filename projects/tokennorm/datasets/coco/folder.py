"""Finds the annotation files and image folders of a dataset in COCO format, in any common layout."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.file_names import resolve_file_names
from tokennorm.datasets.exports import annotation_files, check_known, cvat_splits, read_export, tables
from tokennorm.datasets.image_files import is_image, left_out, list_files
from tokennorm.datasets.splits import (
    SPLIT_NAMES,
    SPLIT_WORDS,
    SPLITS,
    CocoSplit,
    no_garbage_collection,
    normalized_splits,
)
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
    candidates = {path: _split_of(path.relative_to(root)) for path in annotation_files(root, files)}
    chosen = {}
    for name in SPLITS:
        if path := _plainest([(words, path) for path, (split, words) in candidates.items() if split == name], name):
            chosen[name] = path
    for path in candidates:  # one file of a project of CVAT
        chosen = {split: path for split in cvat_splits(path) if split} | chosen
    chosen = {name: chosen[name] for name in SPLITS if name in chosen}

    def read() -> dict[str, tuple[dict[str, Any], Path, str]]:
        found = {name: (*read_annotations(path, root, files, name), str(path)) for name, path in chosen.items()}
        _unite_classes([content for content, _, path in found.values() if not path.endswith('.json')])
        first, *_ = next(iter(found.values()), ({},))
        if first.get('annotations') and found.get('test', ({},))[0].get('annotations') == []:
            del found['test']
        return {name: entry for name, entry in found.items() if 'annotations' in entry[0]}

    contents = (path for path in chosen.values() if path.is_file())
    splits = normalized_splits(root, chosen, read, chosen, files, contents)
    notes = [note for split in splits.values() for note in split.notes]
    whole = chosen.keys() == splits.keys() and not any(re.match('images.*left out', note) for note in notes)
    if whole and (unlisted := _unlisted(splits.values(), files)):
        next(iter(splits.values())).content.setdefault('tokennorm', {}).setdefault('notes', []).append(
            f'images next to others that the annotation files of {" and ".join(splits)} do not list: '
            f'{len(unlisted)} ({shorten(unlisted, 3)})'
        )
    for name in needed or (() if splits else SPLITS):
        if name not in splits:
            for path in candidates:
                check_known(path)
            found = sorted(str(path.relative_to(root)) for path in candidates)
            others = [] if candidates else [str(path.relative_to(root)) for path in tables(files)]
            unread = (
                f'. Tables are not read ({shorten(others, 3)}): convert them to COCO, YOLO or VOC' if others else ''
            )
            raise FileNotFoundError(
                f'{root} has no annotation file for {name}, such as annotations/{name}.json, instances_{name}2017.json '
                f'or {name}/_annotations.coco.json. Its annotation files down to the second level: '
                f'{shorten(found) or "none"}. `tokennorm split FILE` divides one file without splits{unread}'
            )
    return splits


def _unite_classes(contents: Sequence[dict[str, Any]]) -> None:
    """Gives all splits the classes of each: Open Images and DOTA have only those with an object."""
    names = dict.fromkeys(one['name'] for content in contents for one in content['categories'])
    for content in contents:
        own = {one['name']: one['id'] for one in content['categories']}
        more = enumerate((name for name in names if name not in own), max(own.values(), default=0) + 1)
        content['categories'] = [*content['categories'], *(dict(id=i, name=name) for i, name in more)]


def read_annotations(path: Path, root: Path, files: list[Path], split: str) -> tuple[dict[str, Any], Path]:
    """Reads an annotation file of any format for many images; returns its content and the folder of its images.

    The names of the images are those of files, relative to that folder, where these are found.
    """

    def resolve(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
        other = SPLIT_NAMES.keys() - {split}
        return resolve_file_names(
            content['images'], folder, files, lambda image: bool(splits_in(image.parent.relative_to(root)) & other)
        )

    if path.suffix.lower() == '.json':
        content = read_coco_file(path, with_annotations=split != 'test')
        _check_category_ids(content, path)
        content['images'] = [
            {**one, 'file_name': one['coco_url']} if 'coco_url' in one and 'file_name' not in one else one  # of LVIS
            for one in content['images']
        ]
        folder, also = _image_dir(content, path, split, root, files)
        images, notes = resolve(folder)
        if also:
            others = shorten(list(map(str, also)), 3)
            notes.append(
                f'several folders have images of the listed names: those of {folder} are used, not of {others}'
            )
    else:
        content, folder, notes = read_export(path), root, []
        splits = cvat_splits(path)
        if split in splits:
            _select_images(content, [one == split for one in splits])
            if others := splits.count(None):
                notes.append(f'images of subsets that name no split, left out: {others}')
        elif splits and split not in SPLITS:
            raise ValueError(f'{path} is divided already, by the subsets of its images: use the folder {root} as it is')
        images, _ = resolve(root)
        if path.suffix.lower() == '.csv' and images:  # its boxes are fractions of images in one folder
            content = read_export(path, root / Path(images[0]['file_name']).parent)
            images, _ = resolve(root)
    if others := left_out(file for file in files if str(file).startswith(f'{folder}{os.sep}')):
        notes.append(f'files of formats that are not read in {folder}: {others}')
    if notes or images is not content['images']:
        old = content.get('tokennorm', {}).get('notes', [])
        content = {**content, 'images': images, 'tokennorm': dict(notes=[*old, *notes])}
    return content, folder


def _unlisted(splits: Iterable[CocoSplit], files: Sequence[Path]) -> list[str]:
    """The names of images that are in a folder of listed images, and not listed themselves."""
    names = ((split.image_dir, image.get('file_name')) for split in splits for image in split.content['images'])
    used = {os.path.normpath(folder / name) for folder, name in names if isinstance(name, str)}
    kinds = set(map(_kind, used))  # others may be masks
    others = {os.path.normpath(path) for path in files if is_image(path)} - used
    return sorted(os.path.basename(path) for path in others if _kind(path) in kinds)


def _kind(path: str) -> tuple[str, str]:
    return os.path.dirname(path), os.path.splitext(path)[1].lower()


def _select_images(content: dict[str, Any], keep: Sequence[bool]) -> None:
    """Leaves out of COCO content the images that are not kept, and their annotations."""
    content['images'] = [one for one, is_kept in zip(content['images'], keep, strict=True) if is_kept]
    ids = {one['id'] for one in content['images']}
    content['annotations'] = [one for one in content['annotations'] if one['image_id'] in ids]


def _check_category_ids(content: Mapping[str, Any], path: Path) -> None:
    """Raises for annotations whose categories count from 0, and `categories` from 1, or the reverse."""
    used = {one.get('category_id') for one in content.get('annotations', ()) if type(one.get('category_id')) is int}
    listed = {one.get('id') for one in content['categories'] if type(one.get('id')) is int}
    for shift in (1, -1) if used - listed else ():
        if {one + shift for one in used} <= listed:
            raise ValueError(
                f'{path}: category_id of the annotations is {min(used)} to {max(used)}, but the ids of the categories '
                f'are {min(listed)} to {max(listed)}: every object would have a wrong class. Add {shift} to each '
                'category_id, or export again'
            )


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
    extra += 'labels' in words  # of Datumaro, beside `instances`, without boxes
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
            f'the file that is meant to {name}.json' + '. One file for each image is not read' * (len(best) > 3)
        )
    return best[0] if best else None


def _image_dir(
    content: Mapping[str, Any], ann_file: Path, split: str, root: Path, files: list[Path]
) -> tuple[Path, list[Path]]:
    """The folder, down to the second level, that has most of the first 50 images, and others that could be meant.

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

    # If there is no image at all, later checks name the missing files.
    best = max([ann_file.parent, *folders], key=rank)
    if not rank(best)[0]:
        return root, []
    return best, [one for one in folders if one not in (best, ann_file.parent) and rank(one)[:3] == rank(best)[:3]]
