"""Judges the splits of a dataset in COCO form by the rules about entries, annotations, image files and classes."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from tokennorm.base.console import table
from tokennorm.datasets.coco.annotation_rules import NO_OBJECTS, judge
from tokennorm.datasets.coco.columns import Columns
from tokennorm.datasets.coco.entries import id_text, is_box, is_number, is_size, original_id
from tokennorm.datasets.image_files import PARTLY_READ_IMAGE, UNREADABLE_IMAGE, ImageFile, map_files, open_image
from tokennorm.datasets.splits import CocoSplit
from tokennorm.findings import Findings, Rule, current

_MOST_CLASSES = 100  # in a table; of more only the 20 with most objects in the first split


@dataclass(frozen=True)
class Inspection:
    """Counts of a dataset. What is wrong with it was reported."""

    table: str = ''  # names and counts
    most_objects: int = 0  # number of objects in the image that has most

    def lines(self, findings: Findings) -> list[str]:
        """Returns the table and the findings of the command."""
        return ['', *([self.table, ''] if self.table else []), findings.text() or 'No problems found.', '']


def inspect_splits(splits: Mapping[str, CocoSplit], open_images: bool = True) -> Inspection:
    """Judges annotations, image files and how the splits fit together; only the entries if these have errors.

    If the readers have reported errors, nothing is judged: the splits are not whole.
    Every image file is opened to read its size and its end. Only files that do not end as their format does are
    decoded.
    """
    if any(one.rule.about == 'data' for one in current().of('error')):
        return Inspection()
    faults = [(split, *fault) for split in splits.values() for fault in faults_of_entries(split.content)]
    for split, rule, text, items in faults:
        rule.report(split.name, text, items)
    if faults:
        return Inspection()
    opened = [(split, _begin_to_open(split)) for split in splits.values()] if open_images else []
    columns = [split.columns for split in splits.values()]
    judge(columns)
    files = [(split, dict(results) | split.opened) for split, results in opened]
    for split, of_split in files:
        _judge_images(split, of_split)
    _find_equal_files(files)
    return Inspection(_table(columns), max(int(data.objects.max()) for data in columns))


def count_masks(splits: Mapping[str, CocoSplit]) -> tuple[int, int, int]:
    """Returns the number of objects, of those with a segmentation, and of those with a usable one.

    Without valid entries all are 0.
    """
    if any(True for split in splits.values() for _ in faults_of_entries(split.content)):
        return 0, 0, 0
    codes = np.concatenate([split.columns.mask for split in splits.values()])
    return len(codes), int((codes != 'no-mask').sum()), int((codes == '').sum())


# ---- entries ----

INVALID_ENTRY = Rule('invalid-entry', 'error', 'entries with a missing or wrong key', can_allow=False,
    why='An image needs a file name and a size, a category a name, an annotation a box of four finite numbers.',
    do='Export the annotations again, or correct these entries')  # fmt: skip
DUPLICATE_ENTRY = Rule('duplicate-entry', 'error', 'images or categories with the same id or name', can_allow=False,
    why='Annotations refer to images and categories by their ids, and classes are matched by their names.',
    do='Give each its own')  # fmt: skip
_CHECKS = (
    ('images', 'file_name', lambda value: isinstance(value, str) and bool(value)),
    ('images', 'width', is_size),
    ('images', 'height', is_size),
    ('categories', 'name', lambda value: isinstance(value, str) and bool(value)),
    ('annotations', 'bbox', is_box),
    ('annotations', 'bbox_mode', lambda value: value in (None, 1)),  # of detectron2; 1 is COCO's
    ('annotations', 'area', is_number),
)


def faults_of_entries(content: Mapping[str, Any]) -> Iterator[tuple[Rule, str, list[str]]]:
    """Yields rule, text and items for keys that are missing or of a wrong type, and for ids and names that are not
    unique.
    """
    for kind, key, is_valid in _CHECKS:
        if wrong := [one for one in content[kind] if not is_valid(one.get(key))]:
            items = [f'{_label(one)} ({key}={one.get(key)!r:.40})' for one in wrong]
            yield INVALID_ENTRY, f'{kind} without a valid {key}', items
    for kind, key in (('images', 'id'), ('categories', 'id'), ('categories', 'name')):
        counts = Counter(id_text(entry.get(key)) for entry in content[kind])
        if repeated := [value for value, count in counts.items() if count > 1]:
            yield DUPLICATE_ENTRY, f'{kind} with the same {key}', repeated
    for kind in ('images', 'categories'):
        if not content[kind]:
            yield NO_OBJECTS, f'it has no {kind}', []


def _label(entry: Mapping[str, Any]) -> str:
    return f'{entry.get("file_name") or entry.get("name") or f"id {original_id(entry)}"!s:.200}'


# ---- image files ----

IMAGE_SIZE = Rule('image-size', 'error',
    'image files whose size, after rotation by EXIF, is not that of the annotations',
    why='Boxes are then in other places than the objects.', do='Annotate the files that you train on')  # fmt: skip
EXIF_ROTATION = Rule('exif-rotation', 'warning', 'images that their EXIF turns',
    why='They are turned upright, and the boxes are read as those of the upright image.',
    do='Compare the drawings of `tokennorm check`')  # fmt: skip
SHARED_IMAGES = Rule('shared-images', 'warning', 'images that are in two splits',
    why='AP on images that were trained on is too high.', do='Remove them from one of the splits')  # fmt: skip
SAME_CONTENT = Rule('same-content', 'warning', 'images with the same content',
    why='An image that is there several times counts several times.', do='Keep one of each')  # fmt: skip


def _begin_to_open(split: CocoSplit) -> Iterator[tuple[str, ImageFile]]:
    """Begins to open the images that the reader has not opened; gives their names with the results."""
    names = list(dict.fromkeys(image['file_name'] for image in split.content['images']))
    names = [name for name in names if name not in split.opened]
    results = map_files(open_image, [split.image_dir / name for name in names], f'Images of {split.name}')
    return zip(names, results, strict=True)


def _judge_images(split: CocoSplit, files: Mapping[str, ImageFile]) -> None:
    """Reports files that cannot be read, that have another size than is annotated, and those that EXIF turns."""
    images = [(image, files[image['file_name']]) for image in split.content['images']]
    for problem in dict.fromkeys(file.problem for _, file in images if file.problem):
        names = [_label(image) for image, file in images if file.problem == problem]
        UNREADABLE_IMAGE.report(split.name, f'image files {problem} in {split.image_dir}', names)
    pairs = [(image, file.size, (image['width'], image['height'])) for image, file in images if not file.problem]
    other = [(image, '{}x{}, annotated {}x{}'.format(*real, *noted)) for image, real, noted in pairs if real != noted]
    IMAGE_SIZE.report_items(split.name, [f'{_label(image)} ({sizes})' for image, sizes in other])
    partly = [f'{image["file_name"]} ({", ".join(file.left_out)})' for image, file in images if file.left_out]
    PARTLY_READ_IMAGE.report_items(split.name, partly)
    EXIF_ROTATION.report_items(split.name, [image['file_name'] for image, file in images if file.is_turned])


def _find_equal_files(splits: Sequence[tuple[CocoSplit, Mapping[str, ImageFile]]]) -> None:
    """Reports files with the same content in two splits, or twice in one, whatever their names."""
    by_end = defaultdict(list)
    for split, files in splits:
        for name, file in files.items():
            by_end[file.end].append((split.name, split.image_dir / name))
    by_end.pop(b'', None)  # of files that cannot be read
    alike = [one for some in by_end.values() if len(some) > 1 for one in some]
    digests = map_files(_digest, [path for _, path in alike], 'Images of one size')
    names: dict[bytes, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))  # in each split
    for (name, path), digest in zip(alike, digests, strict=True):
        names[digest][name].append(path.name)
    names_of_splits = [split.name for split, _ in splits]
    for first, second in combinations(names_of_splits, 2):
        both = [(file[first][0], file[second][0]) for file in names.values() if first in file and second in file]
        SHARED_IMAGES.report_items(f'{first} and {second}', [' = '.join(dict.fromkeys(pair)) for pair in both])
    for name in names_of_splits:
        equal = [file[name] for file in names.values() if len(file.get(name, ())) > 1]
        SAME_CONTENT.report_items(name, [' = '.join([*some[:3], *['...'] * (len(some) > 3)]) for some in equal])


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _table(splits: Sequence[Columns]) -> str:
    """Counts per split and per class."""
    rows = [['split', 'images', 'without objects', 'objects', 'crowds', 'most in an image']]
    for data in splits:
        objects = np.bincount(data.image[~data.crowd & (data.image >= 0)], minlength=len(data.images))
        counts = len(data.images), (objects == 0).sum(), (~data.crowd).sum(), data.crowd.sum(), objects.max()
        rows.append([*map(str, (data.name, *counts))])
    of_class = [data.objects_by_class for data in splits]
    names = list(of_class[0])
    shown = names if len(names) <= _MOST_CLASSES else [name for name, _ in of_class[0].most_common(20)]
    by_class = [['class', *(data.name for data in splits)]]
    by_class += [[name, *(str(counts[name]) for counts in of_class)] for name in shown]
    if others := set(names) - set(shown):
        sums = (str(sum(counts[name] for name in others)) for counts in of_class)
        by_class.append([f'{len(others)} other classes', *sums])
    return f'{table(rows)}\n\n{table(by_class)}'
