"""Detection on overlapping tiles of a large image, for objects that are small in it.

Akyon et al., "Slicing Aided Hyper Inference", 2022, with one difference: only detections of different tiles are merged,
since the detector has already suppressed duplicates within a tile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokennorm.base.messages import UserError
from tokennorm.inference.runtime import BaseDetector, Detections

MOST_TILES, LEAST_STEP = 10_000, 0.05  # per image; of a tile's side
_SAME_OBJECT = 0.5  # overlap, as a fraction of the smaller of two detections, above which they are one object


@dataclass
class _Object:
    """A detection in pixels of the whole image; `tiles` are the numbers of the tiles that have found it.

    `masks` are the parts of its mask: the pixel of their upper left corner, y and x, and their pixels, bool (h, w).
    `area` is the number of pixels of all of them together.
    """

    box: np.ndarray
    score: float
    label: int
    tiles: set[int]
    masks: list[tuple[int, int, np.ndarray]]
    area: int = 0

    def window(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """Returns the mask within a rectangle of the image, bool (height, width)."""
        pixels = np.zeros((height, width), bool)
        for y, x, mask in self.masks:
            y1, x1 = max(y, top), max(x, left)
            y2, x2 = min(y + mask.shape[0], top + height), min(x + mask.shape[1], left + width)
            if y1 < y2 and x1 < x2:
                pixels[y1 - top : y2 - top, x1 - left : x2 - left] |= mask[y1 - y : y2 - y, x1 - x : x2 - x]
        return pixels


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
    detector: BaseDetector,
    image: np.ndarray,
    tile: int,
    overlap: float = 0.2,
    batch_size: int = 1,
    look: Callable[[Sequence[Detections]], None] = lambda found: None,
) -> Detections:
    """Detects objects on each tile of an image and merges those that several tiles have found, best first.

    `look` is called with the detections on the tiles.
    """
    height, width = image.shape[:2]
    corners = tile_corners(height, width, tile, overlap)
    tiles = [np.ascontiguousarray(image[y : y + tile, x : x + tile]) for y, x in corners]
    objects, with_masks, detected = [], False, detector.detect(tiles, batch_size)
    look(detected)
    for number, ((y, x), found) in enumerate(zip(corners, detected, strict=True)):
        with_masks = with_masks or found.masks is not None
        boxes = found.boxes + np.array([x, y, x, y], np.float32)
        for i, (box, score, label) in enumerate(zip(boxes, found.scores.tolist(), found.labels.tolist(), strict=True)):
            objects.append(_Object(box, score, label, {number}, []))
            if found.masks is not None:
                _add_mask(objects[-1], found.masks[i], y, x)
    kept = merge_tiles(objects)
    return detector.detections(
        np.array([one.box for one in kept], np.float32).reshape(-1, 4),
        np.array([one.score for one in kept], np.float32),
        np.array([one.label for one in kept], np.int64),
        np.array([one.window(0, 0, height, width) for one in kept]).reshape(-1, height, width) if with_masks else None,
    )


def merge_tiles(objects: list[_Object]) -> list[_Object]:
    """Returns detections with those of different tiles merged that are the same object, highest scores first.

    Each takes up the detections with lower scores of the same class that overlap it by more than half of the smaller
    one: by their masks if there are any, else by their boxes. The result spans all of them.
    """
    kept: list[_Object] = []
    for one in sorted(objects, key=lambda one: -one.score):
        for other in kept:
            if other.label == one.label and not other.tiles & one.tiles:
                shared, smaller = _overlap(other, one)
                if shared > _SAME_OBJECT * smaller:
                    low, high = np.minimum(other.box[:2], one.box[:2]), np.maximum(other.box[2:], one.box[2:])
                    other.box = np.concatenate([low, high])
                    other.tiles |= one.tiles
                    other.masks += one.masks
                    other.area += one.area - int(shared)
                    break
        else:
            kept.append(one)
    return kept


def _add_mask(one: _Object, mask: np.ndarray, y: int, x: int) -> None:
    """Gives an object its mask in a tile at `y`, `x`, without what is empty around it."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if len(rows):
        top, left = int(rows[0]), int(columns[0])
        one.masks = [(y + top, x + left, mask[top : rows[-1] + 1, left : columns[-1] + 1].copy())]
        one.area = int(mask.sum())


def _overlap(a: _Object, b: _Object) -> tuple[float, float]:
    """Returns the area that two detections share, and that of the smaller one; `b` has been found in one tile."""
    left, top = np.maximum(a.box[:2], b.box[:2])
    right, bottom = np.minimum(a.box[2:], b.box[2:])
    if right <= left or bottom <= top:
        return 0.0, 1.0
    if not a.masks or not b.masks:
        smaller = min(np.prod(a.box[2:] - a.box[:2]), np.prod(b.box[2:] - b.box[:2]))
        return float((right - left) * (bottom - top)), float(smaller)
    ((y, x, mask),) = b.masks
    return int((a.window(y, x, *mask.shape) & mask).sum()), min(a.area, b.area)
