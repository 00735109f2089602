"""Datasets in other formats as COCO json: converted once, into the cache directory of `tokennorm.files`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tokennorm.datasets.cache import cached_file, fingerprint, write_cached
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.messages import shorten


class LabeledImage(NamedTuple):
    """An image file and the file of its labels; None without objects."""

    image: Path
    labels: Path | None


class LabelFolder(NamedTuple):
    """A dataset folder that `convert_splits` converts."""

    format: str  # its name, for messages
    root: Path  # the folder
    classes: Sequence[str]  # names of the classes
    splits: Mapping[str, Sequence[LabeledImage]]  # the images of each split
    # the objects of an image of a size (width, height), as COCO annotations without ids of their own
    read_labels: Callable[[LabeledImage, tuple[int, int]], list[dict[str, Any]]]
    notes: Mapping[str, Sequence[str]] = MappingProxyType({})  # what was left out of each split, one line each


def convert_splits(folder: LabelFolder) -> dict[str, CocoSplit]:
    """Every split of a folder as normalized COCO json in the cache directory. Unchanged files are not converted again.

    File names are relative to the folder, and those of images elsewhere absolute.
    """
    splits = {}
    for name, entries in folder.splits.items():
        facts = str(folder.root.resolve()), folder.format, list(folder.classes), folder.notes.get(name)
        key = fingerprint(facts, (path for entry in entries for path in entry if path is not None))
        target = cached_file(folder.root, name, key)
        if not target.is_file():
            write_cached(target, _convert(folder, name, entries))
        splits[name] = CocoSplit(name, target, folder.root, json.loads(target.read_bytes()))
    return splits


def _open(entry: LabeledImage) -> tuple[str, tuple[int, int]]:
    return open_image(entry.image.parent, entry.image.name)


def _convert(folder: LabelFolder, name: str, entries: Sequence[LabeledImage]) -> dict[str, Any]:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    unreadable: list[str] = []
    wrong: list[str] = []
    opened = map_files(_open, entries, f'Images of {name}')
    for entry, (problem, size) in zip(entries, opened, strict=True):
        if problem:
            unreadable.append(f'{entry.image} {problem}')
            continue
        image_id, path = len(images) + 1, entry.image.absolute()
        if entry.image.is_relative_to(folder.root):
            path = entry.image.relative_to(folder.root)
        images.append(dict(id=image_id, file_name=str(path), width=size[0], height=size[1]))
        try:
            for one in folder.read_labels(entry, size):
                annotations.append(dict(id=len(annotations) + 1, image_id=image_id) | one)
        except ValueError as error:
            wrong.append(str(error))
    for what, problems in (('image files', unreadable), ('labels', wrong)):
        if problems:
            raise ValueError(f'{name}: {what} that cannot be used: {len(problems)}: {shorten(problems, 3)}')
    categories = [dict(id=i, name=one) for i, one in enumerate(folder.classes, 1)]
    content = dict(images=images, annotations=annotations, categories=categories)
    content['tokennorm'] = dict(
        notes=list(folder.notes.get(name, ())), source=f'{folder.format} labels of {folder.root}'
    )
    return normalize({name: content}, {name: folder.root})[name]


def coco_object(category: int, box: Sequence[float], polygon: Sequence[float] = (), crowd: bool = False) -> dict:
    """A COCO annotation of one object, in pixels, rounded to a thousandth.

    The box is x, y, width, height. A polygon, x and y of each corner in turn, decides on the area. A crowd is neither
    trained on nor counted as missed.
    """
    area = box[2] * box[3]
    more = {}
    if polygon:
        x, y = np.reshape(polygon, (-1, 2)).T
        area = abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
        more['segmentation'] = [[round(value, 3) for value in polygon]]
    box = [round(value, 3) for value in box]
    return dict(category_id=category, bbox=box, area=round(area, 3), iscrowd=int(crowd)) | more
