"""The annotations of a split as arrays, computed once, for the rules of `rules.py`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tokennorm.datasets.coco.entries import is_box, is_number, original_id
from tokennorm.datasets.coco.masks import is_outside, mask_problem
from tokennorm.findings import reports

_MANY = 1 / 4  # of the annotations: then it is a problem of the file, not of some of its objects


class Columns:
    """The N annotations of a split in canonical form. Images and categories are unique, and boxes are numbers.

    Args:
        name: The name of the split.
        content: Its COCO content.
    """

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        facts = content.get('tokennorm', {})
        self.name, self.format = name, facts.get('format', 'COCO')
        self.images: Sequence[Mapping[str, Any]] = content['images']
        self.categories: Sequence[Mapping[str, Any]] = content['categories']
        self.annotations: Sequence[Mapping[str, Any]] = content['annotations']

    def report(self, code: str, chosen: np.ndarray, text: str = '') -> None:
        """Reports a rule about the annotations (N,) that are chosen, if there are any."""
        if chosen.any():
            reports(code, self.name, text, (self.label(i) for i in np.flatnonzero(chosen)))

    def label(self, index: int) -> str:
        """Returns the id of an annotation and the name of its image."""
        label = f'annotation {original_id(self.annotations[index])}'
        image = self.image[index]
        return f'{label} of {self.images[image]["file_name"]}' if image >= 0 else label

    def is_many(self, chosen: np.ndarray) -> bool:
        """Returns whether so many annotations are chosen that it is a problem of the whole file."""
        return bool(chosen.sum() > _MANY * len(self.annotations))

    def _places(self, key: str, entries: Sequence[Mapping[str, Any]]) -> np.ndarray:
        places = {entry['id']: i for i, entry in enumerate(entries)}
        return np.array([places.get(one.get(key), -1) for one in self.annotations], int)

    @cached_property
    def image(self) -> np.ndarray:
        """(N,) places in `images`, -1 for an image that is not listed."""
        return self._places('image_id', self.images)

    @cached_property
    def category(self) -> np.ndarray:
        """(N,) places in `categories`, -1 for a category that is not listed."""
        return self._places('category_id', self.categories)

    @cached_property
    def boxes(self) -> np.ndarray:
        """(N, 4) left, top, width and height."""
        boxes = [one['bbox'] if is_box(one.get('bbox')) else [np.nan] * 4 for one in self.annotations]
        return np.array(boxes, float).reshape(-1, 4)

    @cached_property
    def sizes(self) -> np.ndarray:
        """(N, 2) width and height of the images, NaN for images that are not listed."""
        sizes = np.array([(one['width'], one['height']) for one in self.images] + [(np.nan, np.nan)], float)
        return sizes[self.image]

    @cached_property
    def area(self) -> np.ndarray:
        """(N,) areas."""
        return np.array([area if is_number(area := one.get('area')) else np.nan for one in self.annotations], float)

    @cached_property
    def crowd(self) -> np.ndarray:
        """(N,) bool: crowds."""
        return np.array([bool(one.get('iscrowd')) for one in self.annotations], bool)

    @cached_property
    def with_run_lengths(self) -> np.ndarray:
        """(N,) bool: the segmentation is one of run lengths."""
        return np.array([isinstance(one.get('segmentation'), dict) for one in self.annotations], bool)

    @cached_property
    def known(self) -> np.ndarray:
        """(N,) bool: image and category are listed."""
        return (self.image >= 0) & (self.category >= 0)

    @cached_property
    def degenerate(self) -> np.ndarray:
        """(N,) bool: boxes without area, of known images and categories."""
        return self.known & ((self.boxes[:, 2:] < 1).any(1) | (self.area <= 0))

    @cached_property
    def outside(self) -> np.ndarray:
        """(N,) bool: boxes outside their image, with an area."""
        corners, ends = self.boxes[:, :2], self.boxes[:, :2] + self.boxes[:, 2:]
        return self.known & ~self.degenerate & ((corners >= self.sizes) | (ends <= 0)).any(1)

    @cached_property
    def ignored(self) -> np.ndarray:
        """(N,) bool: marked ignore, with a box in the image."""
        marked = np.array([bool(one.get('ignore')) for one in self.annotations], bool)
        return self.known & ~self.degenerate & ~self.outside & marked

    @cached_property
    def used(self) -> np.ndarray:
        """(N,) bool: objects and crowds that training and evaluation use."""
        return self.known & ~self.degenerate & ~self.outside & ~self.ignored

    @cached_property
    def beyond(self) -> np.ndarray:
        """(N,) bool: used, and more than a pixel of the box is beyond the border."""
        corners, ends = self.boxes[:, :2], self.boxes[:, :2] + self.boxes[:, 2:]
        return self.used & ((corners < -1) | (ends > self.sizes + 1)).any(1)

    @cached_property
    def mask(self) -> np.ndarray:
        """(N,) codes of what is wrong with the segmentation, '' for nothing; those of listed images only."""
        sizes = [[image['height'], image['width']] for image in self.images]
        codes = [
            mask_problem(one.get('segmentation'), sizes[i]) if i >= 0 else ''
            for one, i in zip(self.annotations, self.image.tolist(), strict=True)
        ]
        return np.array(codes, object)

    @cached_property
    def mask_outside(self) -> np.ndarray:
        """(N,) bool: used, and a sound mask is mostly outside of the box."""
        usable = (self.used & (self.mask == '')).tolist()
        outside = [
            fine and is_outside(one['segmentation'], one['bbox'])
            for one, fine in zip(self.annotations, usable, strict=True)
        ]
        return np.array(outside, bool)

    @cached_property
    def objects(self) -> np.ndarray:
        """(number of images,) numbers of objects that are learned or evaluated, without crowds."""
        return np.bincount(self.image[self.used & ~self.crowd], minlength=len(self.images))

    @cached_property
    def objects_by_class(self) -> Counter[str]:
        """The number of objects of each class, in the order of the categories, without crowds."""
        of_class = np.bincount(self.category[(self.category >= 0) & ~self.crowd], minlength=len(self.categories))
        return Counter({one['name']: int(n) for one, n in zip(self.categories, of_class, strict=True)})
