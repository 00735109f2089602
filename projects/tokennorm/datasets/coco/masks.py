"""Segmentations of COCO files: what is wrong with them, their boxes and areas."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

from tokennorm.datasets.coco.entries import Entry, is_number, is_size

# Packed run lengths: digits of 5 bits, as characters from '0'; from 'P' on, another one follows. pycocotools reads
# beyond the end of other strings.
_PACKED = re.compile('([P-o]{0,6}[0-O])+')


def mask_problem(mask: Any, size: list[int]) -> str:
    """Returns the code of what is wrong with a segmentation of an image of `size` (height, width), or ''."""
    if not mask:
        return 'no-mask'
    if isinstance(mask, list):
        return next(filter(None, (_polygon_problem(polygon, size) for polygon in mask)), '')
    if not isinstance(mask, dict):
        return 'invalid-mask'
    return '' if mask.get('size') == size and covers(mask.get('counts'), size[0] * size[1]) else 'mask-size'


def _polygon_problem(polygon: Any, size: list[int]) -> str:
    """As `mask_problem`, of one polygon, by built-in functions: COCO has tens of millions of values."""
    if type(polygon) is not list or not set(map(type, polygon)) <= {int, float}:
        return 'invalid-mask'
    if is_short(polygon):
        return 'short-mask'
    for values, side in ((polygon[::2], size[1]), (polygon[1::2], size[0])):
        if min(values) < -side or max(values) > 2 * side:  # pycocotools walks along every edge, wherever it leads
            return 'mask-outside-image'
    return '' if math.isfinite(sum(polygon)) else 'invalid-mask'  # min and max may skip NaN


def is_short(piece: Any) -> bool:
    """Returns whether a polygon has fewer than 3 points."""
    return isinstance(piece, list) and (len(piece) < 6 or len(piece) % 2 == 1)


def is_outside(mask: Any, box: Sequence[float]) -> bool:
    """Returns whether a polygon begins outside of a box, or most of a run-length mask is; of a mask without a problem.

    A quarter of a side is left for boxes that are not exact.
    """
    x, y, w, h = box
    near_x, near_y = 0.25 * w + 2, 0.25 * h + 2
    if isinstance(mask, list):
        return not all(
            -near_x <= polygon[0] - x <= w + near_x and -near_y <= polygon[1] - y <= h + near_y for polygon in mask
        )
    rows, columns = map(int, mask['size'])
    packed = _packed({**mask, 'size': [rows, columns]})
    left, top = max(x - near_x, 0), max(y - near_y, 0)
    sides = [left, top, min(x + w + near_x, columns) - left, min(y + h + near_y, rows) - top]
    inside = 0
    if min(sides[2:]) > 0:
        (kept,) = run_lengths.frPyObjects(np.array([sides], float), rows, columns)
        inside = int(run_lengths.area(run_lengths.merge([packed, kept], intersect=True)))
    return inside < int(run_lengths.area(packed)) / 2


def misreading(mask: Any, box: Sequence[float]) -> str:
    """Returns as what else a mask that is outside its box would be inside, or ''."""
    if isinstance(mask, list):
        if max(map(max, mask)) <= 1:
            return 'fractions of the image'
        swapped = [[value for pair in zip(one[1::2], one[::2], strict=True) for value in pair] for one in mask]
        return '' if is_outside(swapped, box) else 'y before x'
    turned = _packed({**mask, 'size': mask['size'][::-1]})
    top, left, height, width = run_lengths.toBbox(turned).tolist()
    return '' if is_outside([[left + width / 2, top + height / 2]], box) else 'run lengths by rows'


def box_and_area(mask: Any, size: Any) -> tuple[list[float], float] | None:
    """Returns the box and the area of a mask of an image of `size` (height, width); None for an unusable mask."""
    if isinstance(mask, list) and mask and all(isinstance(p, list) and all(map(is_number, p)) for p in mask):
        corners = [np.reshape(piece, (-1, 2)).astype(float) for piece in mask]
        low, high = np.concatenate(corners).min(0), np.concatenate(corners).max(0)
        areas = (abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2 for x, y in (one.T for one in corners))
        return [*low.tolist(), *(high - low).tolist()], sum(areas)
    fits = isinstance(mask, dict) and size and mask.get('size') == size and all(map(is_size, size))
    if not (fits and covers(mask.get('counts'), size[0] * size[1])):
        return None
    packed = _packed(mask)
    return run_lengths.toBbox(packed).tolist(), float(run_lengths.area(packed))


def _packed(mask: Mapping[str, Any]) -> Entry:
    return run_lengths.frPyObjects(mask, *mask['size']) if isinstance(mask['counts'], list) else dict(mask)


def covers(counts: Any, pixels: int) -> bool:
    """Returns whether run lengths, packed or not, cover a number of pixels. Packed ones may also cover fewer."""
    if isinstance(counts, list):
        return all(type(count) is int and count >= 0 for count in counts) and sum(counts) == pixels
    if not isinstance(counts, str) or not _PACKED.fullmatch(counts):
        return False
    try:
        run_lengths.decode(dict(size=[1, pixels], counts=counts))
    except ValueError:
        return False
    return True
