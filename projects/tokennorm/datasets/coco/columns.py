"""The annotations of a split as arrays, computed once, for the rules of `rules.py`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tokennorm.datasets.coco.entries import original_id
from tokennorm.datasets.coco.masks import NOWHERE, Corners, examine


class Columns:
    """The N annotations of a split in canonical form; `inspection.faults_of_entries` finds none.

    Attributes:
        folder: That of the images.
        image, category: (N,) places in `images` and `categories`, -1 for one that is not listed.
        corners, sides, ends: (N, 2) left and top, width and height, right and bottom of the boxes.
        sizes: (N, 2) width and height of the images, NaN for images that are not listed.
        crowd: (N,) whether it is a crowd.
        degenerate, outside, used: (N,) bool, one of them for each annotation of a listed image and category: a box
            without area, outside the image, or one that training and evaluation use.
        beyond: (N,) bool, used, and more than a pixel of the box is beyond the border.
        objects: Of each image, the number of objects that are learned or evaluated, without crowds.
        objects_by_class: The number of objects of each class, in the order of the categories, without crowds.
    """

    def __init__(self, name: str, content: Mapping[str, Any], folder: str | Path = '') -> None:
        self.name, self.folder = name, Path(folder)
        self.format = content.get('tokennorm', {}).get('format', 'COCO')
        self.images: Sequence[Mapping[str, Any]] = content['images']
        self.categories: Sequence[Mapping[str, Any]] = content['categories']
        self.annotations: Sequence[Mapping[str, Any]] = content['annotations']
        self.image = self._places('image_id', self.images)
        self.category = self._places('category_id', self.categories)
        boxes = np.array([one['bbox'] for one in self.annotations], float).reshape(-1, 4)
        self.corners, self.sides, self.ends = boxes[:, :2], boxes[:, 2:], boxes[:, :2] + boxes[:, 2:]
        sizes = [(one['width'], one['height']) for one in self.images]
        self.sizes = np.array([*sizes, (np.nan, np.nan)], float)[self.image]
        area = np.array([one['area'] for one in self.annotations], float)
        self.crowd = np.array([bool(one.get('iscrowd')) for one in self.annotations], bool)

        known = (self.image >= 0) & (self.category >= 0)
        self.degenerate = known & ((self.sides < 1).any(1) | (area <= 0))
        self.outside = known & ~self.degenerate & ((self.corners >= self.sizes) | (self.ends <= 0)).any(1)
        self.used = known & ~self.degenerate & ~self.outside
        self.beyond = self.used & ((self.corners < -1) | (self.ends > self.sizes + 1)).any(1)
        self.objects = np.bincount(self.image[self.used & ~self.crowd], minlength=len(self.images))
        of_class = np.bincount(self.category[(self.category >= 0) & ~self.crowd], minlength=len(self.categories))
        names = [one['name'] for one in self.categories]
        self.objects_by_class = Counter(dict(zip(names, of_class.tolist(), strict=True)))

    def _places(self, key: str, entries: Sequence[Mapping[str, Any]]) -> np.ndarray:
        places = {entry['id']: i for i, entry in enumerate(entries)}
        return np.array([places.get(one.get(key), -1) for one in self.annotations], int)

    def label(self, index: int) -> str:
        """Returns the id of an annotation and the name of its image."""
        label = f'annotation {original_id(self.annotations[index])}'
        image = self.image[index]
        return f'{label} of {self.images[image]["file_name"]}' if image >= 0 else label

    @cached_property
    def _examined(self) -> list[tuple[str, Corners]]:
        sizes = [[image['height'], image['width']] for image in self.images]
        return [
            examine(one.get('segmentation'), sizes[i]) if i >= 0 else ('', NOWHERE)
            for one, i in zip(self.annotations, self.image.tolist(), strict=True)
        ]

    @property
    def mask(self) -> np.ndarray:
        """(N,) codes of what is wrong with the segmentation, '' for nothing; those of listed images only."""
        return np.array([code for code, _ in self._examined], object)

    @property
    def mask_corners(self) -> np.ndarray:
        """(N, 4) left, top, right and bottom of the segmentations, NaN for those that cannot be drawn."""
        return np.array([corners for _, corners in self._examined], float).reshape(-1, 4)
