"""Detection on overlapping tiles of a large image, for objects that are small in it.

Akyon et al., "Slicing Aided Hyper Inference", 2022, with one difference: only detections of different tiles are merged,
since the detector has already suppressed duplicates within a tile.
"""

from dataclasses import dataclass

import numpy as np

from tokennorm.inference.runtime import BaseDetector, Detections
from tokennorm.messages import UserError

MOST_TILES, LEAST_STEP = 10_000, 0.05  # per image; of a tile's side
_SAME_OBJECT = 0.5  # overlap, as a fraction of the smaller of two detections, above which they are one object


@dataclass
class _Mask:
    """A mask within the rectangle of its pixels: bool (h, w) whose upper left corner is the pixel `top`, `left`."""

    top: int
    left: int
    pixels: np.ndarray

    @property
    def area(self) -> int:
        return int(self.pixels.sum())

    def overlap(self, other: '_Mask') -> int:
        """Returns the number of pixels that both have."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        bottom, right = np.minimum(self._end(), other._end())
        if bottom <= top or right <= left:
            return 0
        a, b = (m.pixels[top - m.top : bottom - m.top, left - m.left : right - m.left] for m in (self, other))
        return int((a & b).sum())

    def union(self, other: '_Mask') -> '_Mask':
        """Returns the pixels that at least one of the two has."""
        top, left = min(self.top, other.top), min(self.left, other.left)
        pixels = np.zeros(np.maximum(self._end(), other._end()) - (top, left), bool)
        for mask in (self, other):
            mask.paste(pixels, top, left)
        return _Mask(top, left, pixels)

    def paste(self, pixels: np.ndarray, top: int = 0, left: int = 0) -> None:
        """Sets the mask's pixels in an image whose upper left corner is the pixel `top`, `left`."""
        height, width = self.pixels.shape
        pixels[self.top - top : self.top - top + height, self.left - left : self.left - left + width] |= self.pixels

    def _end(self) -> np.ndarray:
        return np.array(self.pixels.shape) + (self.top, self.left)


@dataclass
class _Object:
    """A detection in pixels of the whole image; `tiles` are the numbers of the tiles that have found it."""

    box: np.ndarray
    score: float
    label: int
    tiles: set[int]
    mask: _Mask | None


def tile_starts(size: int, tile: int, overlap: float) -> list[int]:
    """Returns where the tiles of an axis start. They are spread evenly and overlap by at least the given fraction."""
    if size <= tile:
        return [0]
    count = -(-(size - tile) // max(int(tile * (1 - overlap)), 1)) + 1
    return [round(i * (size - tile) / (count - 1)) for i in range(count)]


def tile_corners(height: int, width: int, tile: int, overlap: float) -> list[tuple[int, int]]:
    """Returns the upper left corners, y and x, of the tiles of an image.

    Raises:
        ValueError: for so many tiles that it is a slip.
    """
    rows, columns = (tile_starts(size, tile, overlap) for size in (height, width))
    count = len(rows) * len(columns)
    if count > MOST_TILES or (count > 1 and overlap > 1 - LEAST_STEP):
        raise UserError(
            f'an image of {width} x {height} pixels has {count:,} tiles of {tile} x {tile} with an overlap of '
            f'{overlap:g}; expected at most {MOST_TILES:,}, and an overlap of at most {1 - LEAST_STEP:g}: use larger '
            'tiles or less overlap'
        )
    return [(y, x) for y in rows for x in columns]


def detect_in_tiles(
    detector: BaseDetector, image: np.ndarray, tile: int, overlap: float = 0.2, batch_size: int = 1
) -> Detections:
    """Detects objects on each tile of an image and merges those that several tiles have found, best first."""
    height, width = image.shape[:2]
    corners = tile_corners(height, width, tile, overlap)
    tiles = [np.ascontiguousarray(image[y : y + tile, x : x + tile]) for y, x in corners]
    objects, with_masks = [], False
    for number, ((y, x), found) in enumerate(zip(corners, detector.detect(tiles, batch_size), strict=True)):
        with_masks = with_masks or found.masks is not None
        boxes = found.boxes + np.array([x, y, x, y], np.float32)
        for i, (box, score, label) in enumerate(zip(boxes, found.scores.tolist(), found.labels.tolist(), strict=True)):
            mask = None if found.masks is None else _crop(found.masks[i], y, x)
            objects.append(_Object(box, score, label, {number}, mask))
    kept = merge_tiles(objects)
    masks = np.zeros((len(kept), height, width), bool) if with_masks else None
    for place, one in zip(masks if masks is not None else (), kept, strict=False):
        one.mask.paste(place)
    return detector.detections(
        np.array([one.box for one in kept], np.float32).reshape(-1, 4),
        np.array([one.score for one in kept], np.float32),
        np.array([one.label for one in kept], np.int64),
        masks,
    )


def merge_tiles(objects: list[_Object]) -> list[_Object]:
    """Returns detections with those of different tiles merged that are the same object, highest scores first.

    Each takes up the detections with lower scores of the same class that overlap it by more than half of the smaller
    one: by their masks if there are any, else by their boxes. The result spans all of them.
    """
    kept: list[_Object] = []
    for one in sorted(objects, key=lambda one: -one.score):
        for other in kept:
            if other.label == one.label and not other.tiles & one.tiles and _overlap(other, one) > _SAME_OBJECT:
                _unite(other, one)
                break
        else:
            kept.append(one)
    return kept


def _crop(mask: np.ndarray, y: int, x: int) -> _Mask:
    """Returns the mask of a tile at `y`, `x`."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return _Mask(y, x, np.zeros((0, 0), bool))
    top, left = int(rows[0]), int(columns[0])
    return _Mask(y + top, x + left, mask[top : rows[-1] + 1, left : columns[-1] + 1].copy())


def _overlap(a: _Object, b: _Object) -> float:
    """Returns the intersection over the smaller of two detections."""
    left, top = np.maximum(a.box[:2], b.box[:2])
    right, bottom = np.minimum(a.box[2:], b.box[2:])
    if right <= left or bottom <= top:
        return 0.0
    if a.mask is None or b.mask is None:
        smaller = min(np.prod(a.box[2:] - a.box[:2]), np.prod(b.box[2:] - b.box[:2]))
        return float((right - left) * (bottom - top) / smaller)
    return a.mask.overlap(b.mask) / max(min(a.mask.area, b.mask.area), 1)


def _unite(kept: _Object, other: _Object) -> None:
    """Extends a detection by another one of the same object."""
    kept.box = np.concatenate([np.minimum(kept.box[:2], other.box[:2]), np.maximum(kept.box[2:], other.box[2:])])
    if kept.mask is not None and other.mask is not None:
        kept.mask = kept.mask.union(other.mask)
    kept.tiles |= other.tiles
