"""Segmentations of COCO files: whether they can be drawn, their boxes and areas."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

from tokennorm.datasets.coco.entries import Entry, is_size

Corners = tuple[float, float, float, float]  # left, top, right, bottom
NOWHERE: Corners = (math.nan,) * 4
# Packed run lengths: digits of 5 bits, as characters from '0'; from 'P' on, another one follows. pycocotools reads
# beyond the end of other strings.
_PACKED = re.compile('([P-o]{0,6}[0-O])+')


def examine(mask: Any, size: Sequence[int]) -> tuple[str, Corners]:
    """Returns what is wrong with a segmentation of an image of `size` (height, width), and the corners around it.

    The first is the code of a rule, or ''.
    """
    if not mask:
        return 'no-mask', NOWHERE
    corners = None
    if isinstance(mask, list):
        corners = _around_polygons(mask, size)
    elif isinstance(mask, dict) and mask.get('size') == size and covers(mask.get('counts'), size[0] * size[1]):
        x, y, w, h = run_lengths.toBbox(_packed(mask)).tolist()
        corners = x, y, x + w, y + h
    return ('', corners) if corners else ('invalid-mask', NOWHERE)


def _around_polygons(polygons: Sequence[Any], size: Sequence[int]) -> Corners | None:
    """None if one cannot be drawn. By built-in functions: COCO has tens of millions of values."""
    ends = []
    for polygon in polygons:
        if type(polygon) is not list or is_short(polygon) or not set(map(type, polygon)) <= {int, float}:
            return None
        x, y = polygon[::2], polygon[1::2]
        ends.append((min(x), min(y), max(x), max(y)))
        left, top, right, bottom = ends[-1]
        # pycocotools walks along every edge, wherever it leads
        if left < -size[1] or top < -size[0] or right > 2 * size[1] or bottom > 2 * size[0]:
            return None
        if not math.isfinite(sum(polygon)):  # min and max may skip NaN
            return None
    if len(ends) == 1:
        return ends[0]
    lefts, tops, rights, bottoms = zip(*ends, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def is_short(polygon: Any) -> bool:
    """Returns whether a polygon has fewer than 3 points. A list of points, [x, y] each, is not short but wrong."""
    has_numbers = isinstance(polygon, list) and not isinstance(next(iter(polygon), 0), list)
    return has_numbers and (len(polygon) < 6 or len(polygon) % 2 == 1)


def box_and_area(mask: Any, size: Sequence[Any]) -> tuple[list[float], float] | None:
    """Returns the box and the area of a mask of an image of `size` (height, width); None for an unusable mask."""
    problem, (left, top, right, bottom) = examine(mask, size) if all(map(is_size, size)) else ('no size', NOWHERE)
    if problem:
        return None
    if isinstance(mask, dict):
        area = float(run_lengths.area(_packed(mask)))
    else:
        polygons = [np.reshape(polygon, (-1, 2)).astype(float).T for polygon in mask]
        area = sum(abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2 for x, y in polygons)
    return [float(value) for value in (left, top, right - left, bottom - top)], area


def as_run_lengths(segmentation: Any, height: int, width: int) -> Entry:
    """Returns a COCO segmentation that can be drawn as compressed run lengths."""
    if isinstance(segmentation, list):
        return run_lengths.merge(run_lengths.frPyObjects(segmentation, height, width))
    return _packed(segmentation)


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


def draw_mask(mask: Any, height: int, width: int) -> np.ndarray | None:
    """Returns the pixels (H, W) bool of a segmentation; None if there is none, or if it cannot be drawn."""
    if examine(mask, [height, width])[0]:
        return None
    return run_lengths.decode(as_run_lengths(mask, height, width)).astype(bool)
