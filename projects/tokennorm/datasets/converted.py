"""Datasets with one label file per image, YOLO's and Pascal VOC's, as COCO content."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.datasets.splits import CocoSplit, normalized_splits
from tokennorm.messages import shorten


class LabeledImage(NamedTuple):
    """An image file and the file of its labels; None without objects."""

    image: Path
    labels: Path | None


@dataclass
class LabelFolder:
    """A dataset folder that `convert_splits` converts."""

    format: str  # its name, for messages
    root: Path  # the folder
    classes: Sequence[str]  # names of the classes
    splits: Mapping[str, Sequence[LabeledImage]]  # the images of each split
    rules: Any  # the first argument of `read_labels`; it decides with the files on what is read
    # the objects of an image of a size (width, height), as COCO annotations without ids of their own
    read_labels: Callable[[Any, LabeledImage, tuple[int, int]], list[dict[str, Any]]]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what was left out of each split, one line each
    doubts: Callable[[Sequence[dict[str, Any]]], Iterable[str]] = lambda _: ()  # of annotations, one line each


def convert_splits(folder: LabelFolder) -> dict[str, CocoSplit]:
    """Every split of a folder as normalized COCO json in the cache directory. Unchanged files are not converted again.

    File names are relative to the folder, and those of images elsewhere absolute.
    """
    source = f'{folder.format} labels of {folder.root}'
    return normalized_splits(
        folder.root,
        folder.splits,
        lambda: {name: (_convert(folder, name), folder.root, source) for name in folder.splits},
        (folder.format, list(folder.classes), folder.rules, folder.notes),
        (path for entries in folder.splits.values() for entry in entries for path in entry if path is not None),
    )


def _open(entry: LabeledImage) -> tuple[str, tuple[int, int], bool]:
    return open_image(entry.image.parent, entry.image.name)


def _convert(folder: LabelFolder, name: str) -> dict[str, Any]:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    unreadable: list[str] = []
    wrong: list[str] = []
    entries = folder.splits[name]
    for entry, (problem, size, _) in zip(entries, map_files(_open, entries, f'Images of {name}'), strict=True):
        if problem:
            unreadable.append(f'{entry.image} {problem}')
            continue
        image_id, path = len(images) + 1, entry.image.absolute()
        if entry.image.is_relative_to(folder.root):
            path = entry.image.relative_to(folder.root)
        images.append(dict(id=image_id, file_name=str(path), width=size[0], height=size[1]))
        try:
            for one in folder.read_labels(folder.rules, entry, size):
                annotations.append(dict(id=len(annotations) + 1, image_id=image_id) | one)
        except ValueError as error:
            wrong.append(str(error))
    for what, problems in (('image files', unreadable), ('labels', wrong)):
        if problems:
            raise ValueError(f'{name}: {what} that cannot be used: {len(problems)}: {shorten(problems, 3)}')
    categories = [dict(id=i, name=one) for i, one in enumerate(folder.classes, 1)]
    notes = [*folder.notes.get(name, ()), *folder.doubts(annotations)]
    return dict(images=images, annotations=annotations, categories=categories, tokennorm=dict(notes=notes))


def coco_object(category: int, box: Sequence[float], polygon: Sequence[float] = (), crowd: bool = False) -> dict:
    """A COCO annotation of one object, in pixels, rounded to a thousandth, without the area.

    The box is x, y, width, height. A polygon is x and y of each corner in turn. A crowd is background in
    training, and not counted as missed.
    """
    mask = dict(segmentation=[[round(value, 3) for value in polygon]]) if polygon else {}
    return dict(category_id=category, bbox=[round(value, 3) for value in box], iscrowd=int(crowd)) | mask
