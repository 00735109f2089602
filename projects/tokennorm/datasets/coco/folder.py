"""Finds the annotation files and image folders of a dataset in COCO format or CVAT's, in any common layout."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from tokennorm.base.messages import shorten
from tokennorm.base.process import without_collection
from tokennorm.datasets.coco.entries import Content
from tokennorm.datasets.coco.file_names import find_files
from tokennorm.datasets.cvat import is_cvat, read_cvat, subsets_in
from tokennorm.datasets.image_files import list_files
from tokennorm.datasets.splits import SPLIT_WORDS, SPLITS, ReadSplit, splits_in, words_in
from tokennorm.datasets.unread import CONVERTERS, OtherFormatError, check_known
from tokennorm.findings import Rule

RENAMED_FILE = Rule('renamed-file', 'warning', 'files found under other names than listed', changes=True,
    why='Programs write other folders, separators, cases or URLs than are on the disk. A file is meant if no other '
        'file fits as well.',
    do='Compare the names')  # fmt: skip
AMBIGUOUS_FOLDER = Rule('ambiguous-folder', 'warning', 'several folders have images of the listed names',
    why='One may have masks or copies instead of the images.',
    do='Compare the folder that is named, or move the others away')  # fmt: skip
SHIFTED_CATEGORY_IDS = Rule('shifted-category-ids', 'error',
    'category ids of annotations count from another number than the categories',
    why='Each object would have the name of its neighbor in the list of classes.',
    do='Add the difference to each category_id, or export again')  # fmt: skip
_PLAIN_WORDS = {'instances', 'annotations', 'annotation', 'coco', 'labels', 'dataset', 'data'}  # name no split


def find_coco(root: Path) -> dict[str, ReadSplit]:
    """Finds the splits of a folder: annotation files named after a split, or in a folder named after one.

    Examples are `annotations/instances_train2017.json`, `train.json` and `train/_annotations.coco.json`, and the same
    names of CVAT's XML. If several files match a split, the file with the fewest other words in its name is used.
    Images may be anywhere in the folder. A test file without annotations, such as COCO's own, is not a split.
    """
    files = list_files(root)
    candidates = annotation_files(root, files)
    chosen = {}
    for path in candidates:  # one file of all splits
        chosen |= dict.fromkeys(subsets_in(path) if path.suffix.lower() == '.xml' else (), path)
    for split in SPLITS:
        if named := [path for path in candidates if _split_of(path.relative_to(root)) == split]:
            chosen[split] = _plainest(named, split)
    contents = {split: _read_file(chosen[split], split) for split in SPLITS if split in chosen}
    if is_unlabeled := 'test' in contents and not contents['test']['annotations']:
        del contents['test']
    read = {split: _read(split, content, chosen[split], root, files) for split, content in contents.items()}
    return {name: replace(split, has_list=is_unlabeled) for name, split in read.items()}


def annotation_files(root: Path, files: Sequence[Path]) -> list[Path]:
    """Returns the files down to the second level that can hold the annotations of many images."""
    near = [path for path in files if len(path.parts) - len(root.parts) <= 3]
    xmls = [path for path in near if path.suffix.lower() == '.xml']
    xmls = xmls if len(xmls) <= 10 * len(SPLITS) else []  # more are Pascal VOC's
    return [path for path in near if path.suffix.lower() == '.json'] + list(filter(is_cvat, xmls))


def read_whole(path: Path) -> dict[str, ReadSplit]:
    """Reads one annotation file as a split that is named after the file."""
    return {path.stem: _read(path.stem, _read_file(path, path.stem), path, path.parent, list_files(path.parent))}


def _read_file(path: Path, split: str) -> Content:
    if path.suffix.lower() == '.xml':
        return read_cvat(path, split)
    return read_coco_file(path, with_annotations=split != 'test')


@without_collection()
def read_coco_file(path: Path, with_annotations: bool = True) -> dict[str, Any]:
    """Reads a COCO annotation file: an object with the lists images, annotations and categories, each of objects."""
    try:
        content = json.loads(path.read_bytes())  # UTF-8 or UTF-16, with or without a mark
    except (OSError, ValueError, RecursionError) as error:
        text = f'{path} cannot be read as JSON: {error}; save it as UTF-8, or export the annotations again'
        raise ValueError(text) from error
    for key in ('images', 'annotations', 'categories'):
        if key == 'annotations' and not with_annotations and isinstance(content, dict):
            content.setdefault(key, [])
        entries = content.get(key) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            check_known(path)
            text = f'{path} is not a COCO annotation file: it has no list of objects named {key!r}; {CONVERTERS}'
            raise OtherFormatError(text)
    return content


def _read(split: str, content: Content, path: Path, root: Path, files: Sequence[Path]) -> ReadSplit:
    _check_category_ids(content, split)
    names = [image.get('file_name', image.get('coco_url')) for image in content['images']]  # LVIS has URLs
    names = [name if isinstance(name, str) else '' for name in names]
    folder = _image_dir(names, path, split, root, files)

    @cache
    def is_of_other_split(place: Path) -> bool:
        return bool(splits_in(place.relative_to(root)) & (set(SPLITS) - {split}))

    paths = [os.path.join(folder, name) if name else '' for name in names]
    found = find_files(list(filter(None, paths)), (file for file in files if not is_of_other_split(file.parent)))
    new = {old: os.path.relpath(file, folder) for old, file in found.items()}
    renamed = [f'{name} as {new[old]}' for name, old in zip(names, paths, strict=True) if old in new]
    if renamed and RENAMED_FILE.report(split, items=renamed):
        pairs = zip(content['images'], paths, strict=True)
        images = [{**image, 'file_name': new[old]} if old in new else image for image, old in pairs]
        return ReadSplit('COCO', {**content, 'images': images}, folder, str(path))
    with path.open('rb') as file:  # mmdet cannot read a mark of the encoding
        is_read_by_mmdet = path.suffix.lower() == '.json' and file.read(1) not in (b'\xef', b'\xfe', b'\xff')
    return ReadSplit('COCO', content, folder, str(path), path if is_read_by_mmdet else None)


def _check_category_ids(content: Content, split: str) -> None:
    """Reports annotations whose categories count from 0, and `categories` from 1, or the reverse."""
    used = {one.get('category_id') for one in content['annotations'] if type(one.get('category_id')) is int}
    listed = {one.get('id') for one in content['categories'] if type(one.get('id')) is int}
    for shift in (1, -1) if used - listed else ():
        if {one + shift for one in used} <= listed:
            text = f'category_id of the annotations is {min(used)} to {max(used)}, but the ids of the categories are'
            SHIFTED_CATEGORY_IDS.report(split, f'{text} {min(listed)} to {max(listed)}: add {shift} to each')


def _split_of(path: Path) -> str | None:
    """The split that a relative path names, by the file or else by the nearest folder."""
    parts = (splits_in(part) for part in (path.stem, *reversed(path.parts[:-1])))
    named = next(filter(None, parts), set())
    return named.pop() if len(named) == 1 else None


def _plainest(paths: Sequence[Path], split: str) -> Path:
    """The file with the fewest other words in its name."""

    def other_words(path: Path) -> int:
        words = words_in(path.stem)
        extra = 2 * sum(word not in SPLIT_WORDS and word not in _PLAIN_WORDS for word in words)
        return extra + ('labels' in words)  # which may be those of whole images, beside `instances`

    fewest = min(map(other_words, paths))
    best = [path for path in paths if other_words(path) == fewest]
    for path in best if len(best) > 1 else ():
        check_known(path)
    if len(best) > 1:
        _read_file(best[0], split)  # raises where it has another format, such as a file per image
        text = f'match {split} equally well: name the folder of one dataset, or rename the file that is meant to'
        raise ValueError(f'{shorten(list(map(str, best)), 3)} {text} {split}.json')
    return best[0]


def _image_dir(names: Sequence[str], ann_file: Path, split: str, root: Path, files: Sequence[Path]) -> Path:
    """The folder, down to the second level, that has most of the first 50 images; reports others that may be meant.

    Ties are resolved in this order: a folder that is not named after another split, nor inside such a folder; a folder
    named after this split; the folder nearest to the annotation file; the shortest path.
    """
    names = [name for name in names if name and not os.path.isabs(name)][:50]  # every folder would have absolute ones
    near = {Path(*place.parts[: len(root.parts) + 2]) for place in {file.parent for file in files}}
    rank: Callable[[Path], tuple[int, ...]] = partial(_rank, names, ann_file, split, root)
    folders = sorted({root, ann_file.parent, *near, *(folder.parent for folder in near - {root})})
    best = max(folders, key=rank)
    if not rank(best)[0]:  # no image at all: a rule names the missing files
        return root
    others = [folder for folder in folders if folder != best and rank(folder)[:3] == rank(best)[:3]]
    if others and best != ann_file.parent:
        text = f'several folders have images of the listed names: those of {best} are used, not of others'
        AMBIGUOUS_FOLDER.report(split, text, map(str, others))
    return best


def _rank(names: Sequence[str], ann_file: Path, split: str, root: Path, folder: Path) -> tuple[int, ...]:
    named = splits_in(folder.relative_to(root))
    shared = len(Path(os.path.commonpath([folder, ann_file])).parts)
    found = sum(os.path.isfile(folder / name) for name in names)
    return found, named <= {split}, split in named, shared, -len(folder.parts)
