"""Datasets with one label file per image, YOLO's and Pascal VOC's, as COCO content."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokennorm.datasets.coco.entries import Content, Entry
from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.datasets.splits import CocoSplit, normalized_splits
from tokennorm.datasets.tally import Tally


class LabeledImage(NamedTuple):
    """An image file and the file of its labels; None without objects."""

    image: Path
    labels: Path | None


@dataclass
class LabelFolder:
    """A dataset folder that `convert_splits` converts."""

    format: str  # its name
    root: Path  # the folder
    classes: Sequence[str]  # names of the classes
    splits: Mapping[str, Sequence[LabeledImage]]  # the images of each split
    rules: Any  # the first argument of `read_labels`; it decides with the files on what is read
    # the objects of an image of a size (width, height), as COCO annotations without ids of their own
    read_labels: Callable[[Any, LabeledImage, tuple[int, int], Tally], list[dict[str, Any]]]
    # reports what all annotations of a split may mean otherwise
    doubt: Callable[[str, Sequence[dict[str, Any]]], None] = lambda split, annotations: None


def convert_splits(folder: LabelFolder) -> dict[str, CocoSplit]:
    """Every split of a folder as normalized COCO json in the cache directory. Unchanged files are not converted again.

    File names are relative to the folder, and those of images elsewhere absolute.
    """
    source = f'{folder.format} labels of {folder.root}'
    return normalized_splits(
        folder.root,
        folder.splits,
        lambda: {name: (_convert(folder, name), folder.root, source) for name in folder.splits},
        (folder.format, list(folder.classes), folder.rules, folder.splits),
        (path for entries in folder.splits.values() for entry in entries for path in entry if path is not None),
    )


def _open(entry: LabeledImage) -> tuple[str, tuple[int, int], bool]:
    return open_image(entry.image.parent, entry.image.name)


def _convert(folder: LabelFolder, name: str) -> Content:
    images: list[Entry] = []
    annotations: list[Entry] = []
    tally, entries = Tally(name), folder.splits[name]
    for entry, (problem, size, _) in zip(entries, map_files(_open, entries, f'Images of {name}'), strict=True):
        if problem:
            tally('unreadable-image', str(entry.image), f'image files {problem}')
            continue
        image_id, path = len(images) + 1, entry.image.absolute()
        if entry.image.is_relative_to(folder.root):
            path = entry.image.relative_to(folder.root)
        images.append(dict(id=image_id, file_name=str(path), width=size[0], height=size[1]))
        for one in folder.read_labels(folder.rules, entry, size, tally):
            annotations.append(dict(id=len(annotations) + 1, image_id=image_id) | one)
    tally.report()
    folder.doubt(name, annotations)
    categories = [dict(id=i, name=one) for i, one in enumerate(folder.classes, 1)]
    facts = dict(format=folder.format)
    return dict(images=images, annotations=annotations, categories=categories, tokennorm=facts)


def coco_object(category: int, box: Sequence[float], polygon: Sequence[float] = (), crowd: bool = False) -> dict:
    """A COCO annotation of one object, in pixels, rounded to a thousandth, without the area.

    The box is x, y, width, height. A polygon is x and y of each corner in turn. A crowd is background in
    training, and not counted as missed.
    """
    mask = dict(segmentation=[[round(value, 3) for value in polygon]]) if polygon else {}
    return dict(category_id=category, bbox=[round(value, 3) for value in box], iscrowd=int(crowd)) | mask
