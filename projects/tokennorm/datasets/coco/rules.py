"""Rules about the annotations of a split: each is an expression on its columns, and a row in `findings.data_rules`."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tokennorm.base.messages import did_you_mean
from tokennorm.datasets.coco.columns import Columns
from tokennorm.findings import reports

NARROWEST = 100  # long side over short side; the shortest side of the smallest training size is then 1 pixel


def judge(splits: Sequence[Columns]) -> None:
    """Applies all rules about annotations and classes; the classes are those of the first split."""
    first, *others = splits
    for data in splits:
        for code, find_items in OF_SPLIT.items():
            report(code, data.name, find_items(data))
        if not data.objects.any():
            reports('no-objects', data.name)
        for code, choose in OF_ANNOTATIONS.items() if len(data.annotations) else ():
            report(code, data.name, map(data.label, np.flatnonzero(choose(data))))
    for other in others:
        for code, compare in OF_CLASSES.items():
            report(code, other.name, compare(first, other))
    report('similar-classes', first.name, similar_names(first))


def report(code: str, split: str, items: Iterable[str]) -> None:
    """Reports what a rule found in a split, if it found something."""
    if items := list(items):
        reports(code, split, items=items)


# ---- which of the annotations (N,) a rule is about ----


def boxes_fit_as_corners(data: Columns) -> bool:
    """Returns whether boxes of COCO JSON fit as x1, y1, x2, y2, which no box before the border and no mask denies."""
    fit = ((data.corners >= 0) & (data.corners < data.sides) & (data.sides <= data.sizes + 1)).all(1)
    if data.format != 'COCO' or not is_many(data.beyond) or not fit[data.image >= 0].all():
        return False
    # the masks of most boxes end where they do as x, y, width, height
    masked, ends = data.used & (data.mask == ''), data.mask_corners[:, 2:]
    denied = abs(ends - data.ends).sum(1) < abs(ends - data.sides).sum(1)
    return not masked.any() or denied[masked].mean() <= 0.5


def is_many(chosen: np.ndarray) -> bool:
    """Returns whether so many annotations are chosen that it is a problem of the whole file: a quarter."""
    return chosen.mean() > 1 / 4


def crowds_if_many(data: Columns) -> np.ndarray:
    """COCO has 1% with masks, and VOC 20% difficult objects. Some programs mark each mask of several parts."""
    masks = np.array([isinstance(one.get('segmentation'), dict) for one in data.annotations], bool)
    return data.crowd & (is_many(data.crowd) | ((data.crowd & masks).mean() > 1 / 20)) & data.objects.any()


def masks_beyond_their_box(data: Columns) -> np.ndarray:
    """A quarter of a side is left for boxes that are not exact."""
    near, corners = 0.25 * data.sides + 2, data.mask_corners
    beyond = (corners[:, :2] < data.corners - near) | (corners[:, 2:] > data.ends + near)
    return data.used & beyond.any(1)


OF_ANNOTATIONS: dict[str, Callable[[Columns], np.ndarray]] = {
    'orphan-image-id': lambda data: data.image < 0,
    'orphan-category-id': lambda data: (data.image >= 0) & (data.category < 0),
    'degenerate-bbox': lambda data: data.degenerate,
    'bbox-outside-image': lambda data: data.outside,
    'bbox-as-corners': lambda data: data.beyond & boxes_fit_as_corners(data),
    'bbox-out-of-bounds': lambda data: data.beyond & (not boxes_fit_as_corners(data)),
    'many-crowds': crowds_if_many,
    'no-mask': lambda data: data.mask == 'no-mask',
    'invalid-mask': lambda data: data.mask == 'invalid-mask',
    'mask-outside-bbox': masks_beyond_their_box,
}


# ---- which images and classes of a split a rule is about ----


def repeated_images(data: Columns, with_same_objects: bool) -> list[str]:
    """The files that are listed more than once, all with the same objects or not."""
    objects = defaultdict(list)
    places = defaultdict(list)
    for i, image in enumerate(data.images):
        places[os.path.abspath(data.folder / image['file_name'])].append(i)
    again = {name: some for name, some in places.items() if len(some) > 1}
    for i in np.flatnonzero(np.isin(data.image, [i for some in again.values() for i in some])):
        one = data.annotations[i]
        objects[data.image[i]].append(repr([one['category_id'], one['bbox'], one.get('segmentation'), one['iscrowd']]))
    return [
        min((data.images[i]['file_name'] for i in some), key=len)
        for some in again.values()
        if (len({tuple(sorted(objects[i])) for i in some}) == 1) == with_same_objects
    ]


def narrow_images(data: Columns) -> list[str]:
    """The images that resizing would leave without a pixel in one direction."""
    sizes = [(image['file_name'], image['width'], image['height']) for image in data.images]
    return [name for name, *size in sizes if max(size) > NARROWEST * min(size)]


def similar_names(data: Columns) -> list[str]:
    """The names of classes that differ only in case and spaces."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in data.objects_by_class:
        alike[' '.join(name.casefold().split())].append(ascii(name))
    return [' and '.join(names) for names in alike.values() if len(names) > 1]


OF_SPLIT: dict[str, Callable[[Columns], list[str]]] = {
    'narrow-image': narrow_images,
    'repeated-image': lambda data: repeated_images(data, with_same_objects=False),
    'oversampled-image': lambda data: repeated_images(data, with_same_objects=True),
    'zero-instance-category': lambda data: [name for name, count in data.objects_by_class.items() if not count],
}


# ---- which classes of another split than the first a rule is about ----


def extra_classes(first: Columns, other: Columns) -> list[str]:
    """The classes that only the other split has, if it has all of the first."""
    names, theirs = first.objects_by_class, other.objects_by_class
    extra = [f'{name} ({count} objects)' for name, count in theirs.items() if name not in names]
    return extra if names.keys() <= theirs.keys() else []


def unlearned_classes(first: Columns, other: Columns) -> list[str]:
    """The classes with objects of which train has none; they may be misspelled."""
    learned = [name for name, count in first.objects_by_class.items() if count]
    words = [name for name in learned if not re.search(r'\d', name)]
    new = [name for name in first.objects_by_class if name not in learned and other.objects_by_class[name]]
    return [f'{name}{did_you_mean(name, words)}' for name in new] if first.name == 'train' else []


OF_CLASSES: dict[str, Callable[[Columns, Columns], list[str]]] = {
    'extra-classes': extra_classes,
    'unlearned-classes': unlearned_classes,
}
