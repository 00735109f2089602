"""The annotations of a split as arrays, computed once, for the rules of `rules.py`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tokennorm.datasets.coco.entries import original_id
from tokennorm.datasets.coco.masks import is_outside, mask_problem
from tokennorm.findings import reports

_MANY = 1 / 4  # of the annotations: then it is a problem of the file, not of some of its objects


class Columns:
    """The N annotations of a split in canonical form; `inspection.faults_of_entries` finds none.

    Attributes:
        image, category: (N,) places in `images` and `categories`, -1 for one that is not listed.
        boxes: (N, 4) left, top, width and height.
        sizes: (N, 2) width and height of the images, NaN for images that are not listed.
        area, crowd: (N,) numbers, and whether it is a crowd.
        degenerate, outside, ignored, used: (N,) bool, one of them for each annotation of a listed image and category:
            a box without area, outside the image, marked ignore, or one that training and evaluation use.
        beyond: (N,) bool, used, and more than a pixel of the box is beyond the border.
        objects: Of each image, the number of objects that are learned or evaluated, without crowds.
        objects_by_class: The number of objects of each class, in the order of the categories, without crowds.
    """

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self.name, self.format = name, content.get('tokennorm', {}).get('format', 'COCO')
        self.images: Sequence[Mapping[str, Any]] = content['images']
        self.categories: Sequence[Mapping[str, Any]] = content['categories']
        self.annotations: Sequence[Mapping[str, Any]] = content['annotations']
        self.image = self._places('image_id', self.images)
        self.category = self._places('category_id', self.categories)
        self.boxes = np.array([one['bbox'] for one in self.annotations], float).reshape(-1, 4)
        sizes = [(one['width'], one['height']) for one in self.images]
        self.sizes = np.array([*sizes, (np.nan, np.nan)], float)[self.image]
        self.area = np.array([one['area'] for one in self.annotations], float)
        self.crowd = np.array([bool(one.get('iscrowd')) for one in self.annotations], bool)
        marked = np.array([bool(one.get('ignore')) for one in self.annotations], bool)

        corners, ends = self.boxes[:, :2], self.boxes[:, :2] + self.boxes[:, 2:]
        known = (self.image >= 0) & (self.category >= 0)
        self.degenerate = known & ((self.boxes[:, 2:] < 1).any(1) | (self.area <= 0))
        self.outside = known & ~self.degenerate & ((corners >= self.sizes) | (ends <= 0)).any(1)
        self.ignored = known & ~self.degenerate & ~self.outside & marked
        self.used = known & ~self.degenerate & ~self.outside & ~self.ignored
        self.beyond = self.used & ((corners < -1) | (ends > self.sizes + 1)).any(1)
        self.objects = np.bincount(self.image[self.used & ~self.crowd], minlength=len(self.images))
        of_class = np.bincount(self.category[(self.category >= 0) & ~self.crowd], minlength=len(self.categories))
        names = [one['name'] for one in self.categories]
        self.objects_by_class = Counter(dict(zip(names, of_class.tolist(), strict=True)))

    def _places(self, key: str, entries: Sequence[Mapping[str, Any]]) -> np.ndarray:
        places = {entry['id']: i for i, entry in enumerate(entries)}
        return np.array([places.get(one.get(key), -1) for one in self.annotations], int)

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
