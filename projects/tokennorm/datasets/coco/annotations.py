"""Checks one annotation file: the types of its entries, then boxes and masks."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from pycocotools import mask as run_lengths

from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.problems import Inspection, entry_label, grouped, list_items

_MOST = 10**12  # largest coordinate, side or area; some dtypes hold no more
_PARTLY_OUTSIDE = 'boxes partly outside their image'
_NO_MASK = 'annotations without a segmentation'
_SHORT_MASK = 'segmentations that are neither polygons of 3 points or more nor run lengths'
# Packed run lengths: digits of 5 bits, as characters from '0'; from 'P' on, another one follows. pycocotools reads
# beyond the end of other strings.
_PACKED = re.compile('([P-o]{0,6}[0-O])+')


# ---- entries: their keys, the types of these, and unique ids ----


def _is_number(value: Any) -> bool:
    """Returns whether a value is a finite number of a size that coordinates have."""
    return isinstance(value, int | float) and abs(value) < _MOST


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 1 and value == int(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53  # evaluations hold it as float


def _is_id(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(_is_number, value))


_KEYS = dict(
    images=dict(id=_is_id, file_name=_is_name, width=_is_size, height=_is_size),
    categories=dict(id=_is_id, name=_is_name),
    annotations=dict(
        id=_is_integer, image_id=_is_id, category_id=_is_id, bbox=_is_box, area=_is_number, iscrowd=(0, 1).__contains__
    ),
)


def inspect_entries(split: CocoSplit, found: Inspection) -> None:
    """Adds errors for keys that are missing or of a wrong type, and for ids that are not unique."""
    names = {image['id']: image.get('file_name') for image in split.content['images'] if _is_id(image.get('id'))}
    for kind, checks in _KEYS.items():
        entries = split.content[kind]
        for key, is_valid in checks.items():
            wrong = [
                f'{entry_label(entry, i, names)} ({key}={entry.get(key)!r:.40})'
                for i, entry in enumerate(entries)
                if not is_valid(entry.get(key))
            ]
            if wrong and not (key == 'iscrowd' and split.name == 'train'):  # only the evaluation reads iscrowd
                found.errors.append(f'{split.name}: {kind} without a valid {key}: {list_items(wrong)}')
        for key in ('id',) if kind != 'categories' else ('id', 'name'):
            twice = _repeated([entry.get(key) for entry in entries])
            if twice:
                found.errors.append(f'{split.name}: {kind} with the same {key}: {list_items(twice)}')
    if not split.content['categories'] or not split.content['images']:
        found.errors.append(f'{split.name}: {split.ann_file} has no images or no categories')


def _repeated(values: list[Any]) -> list[str]:
    """Values that are there more than once, in words."""
    return [value for value, count in Counter(map(repr, values)).items() if count > 1]


# ---- boxes ----


def inspect_boxes(split: CocoSplit, found: Inspection) -> None:
    """Adds the problems of boxes to `found`, and the largest number of objects in an image. Entries must be valid."""
    annotations = split.content['annotations']
    images = {image['id']: image for image in split.content['images']}
    categories = {category['id'] for category in split.content['categories']}
    fate = 'not trained on' if split.name == 'train' else 'which the evaluation counts as missed'
    problems: dict[str, list[str]] = defaultdict(list)
    objects: Counter[Any] = Counter()
    for annotation in annotations:
        image = images.get(annotation['image_id'])
        if image is None:
            problems['annotations of an image that is not listed, ignored'].append(f'annotation {annotation["id"]}')
            continue
        problem = _box_problem(annotation, image, categories, fate)
        if problem:
            problems[problem].append(f'annotation {annotation["id"]} of {image["file_name"]}')
        if problem in ('', _PARTLY_OUTSIDE) and not annotation.get('iscrowd'):
            objects[image['id']] += 1
    found.warnings += grouped(split.name, problems)
    beyond = len(problems[_PARTLY_OUTSIDE])
    if beyond > len(annotations) / 4 and all(_fits_as_corners(annotation, images) for annotation in annotations):
        found.errors.append(
            f'{split.name}: {beyond} boxes reach beyond their image and would fit as [x1, y1, x2, y2]: '
            'COCO has [x, y, width, height]'
        )
    if split.name != 'train' and any(annotation['id'] == 0 for annotation in annotations):
        found.errors.append(
            f'{split.name}: an annotation has the id 0, which the evaluation takes for no match; count from 1, as '
            '`tokennorm split` does'
        )
    found.most_objects = max(found.most_objects, *objects.values(), 0)
    if not objects:
        found.errors.append(f'{split.name}: no image has an object to learn from or to evaluate on')
    unused = [name for name, count in split.objects_by_class().items() if not count]
    if unused:
        found.warnings.append(f'{split.name}: classes without an example: {list_items(unused)}')


def _box_problem(annotation: Mapping[str, Any], image: Mapping[str, Any], categories: set[Any], fate: str) -> str:
    """The problem of a box, in words, or ''."""
    x, y, w, h = annotation['bbox']
    width, height = image['width'], image['height']
    if annotation['category_id'] not in categories:
        return 'annotations of a category that is not listed, ignored'
    if w < 1 or h < 1 or annotation['area'] <= 0:
        return f'boxes without area (a side below 1 pixel, or area=0), {fate}'
    if x >= width or y >= height or x + w <= 0 or y + h <= 0:
        return f'boxes outside their image, {fate}'
    if annotation.get('ignore'):
        return f'objects marked ignore, {fate}'
    if x < -1 or y < -1 or x + w > width + 1 or y + h > height + 1:
        return _PARTLY_OUTSIDE
    return ''


def _fits_as_corners(annotation: Mapping[str, Any], images: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Returns whether a box could be two corners inside its image."""
    x1, y1, x2, y2 = annotation['bbox']
    image = images.get(annotation['image_id'])
    return image is not None and x1 < x2 <= image['width'] + 1 and y1 < y2 <= image['height'] + 1


# ---- masks: polygons and run lengths ----


def inspect_masks(split: CocoSplit, found: Inspection) -> None:
    """Adds the problems of segmentations to `found`. Entries must be valid."""
    images = {image['id']: image for image in split.content['images']}
    problems: dict[str, list[str]] = defaultdict(list)
    for annotation in split.content['annotations']:
        image = images.get(annotation['image_id'])
        if image is not None:  # others are not read
            kind, detail = mask_problem(annotation.get('segmentation'), [image['height'], image['width']])
            if kind:
                label = f'annotation {annotation["id"]} of {image["file_name"]}'
                problems[kind].append(f'{label} ({detail})' if detail else label)
    if split.name == 'train' and _SHORT_MASK in problems:
        found.warnings.append(f'{split.name}: {_SHORT_MASK}, not trained on: {list_items(problems.pop(_SHORT_MASK))}')
    if len(problems[_NO_MASK]) == len(split.content['annotations']) > 0:
        found.mask_errors.append(f'{split.name}: no annotation has a segmentation')
    else:
        found.mask_errors += grouped(split.name, problems)


def mask_problem(mask: Any, size: list[int]) -> tuple[str, str]:
    """The problem of a segmentation of an image of `size` (height, width), and a detail; ('', '') without a problem."""
    if not mask:
        return _NO_MASK, ''
    if isinstance(mask, list):
        return _polygons_problem(mask, size)
    if not isinstance(mask, dict):
        return 'segmentations that are neither lists nor run lengths', ''
    counts = mask.get('counts')
    if not isinstance(counts, list | str) or mask.get('size') is None:
        return _SHORT_MASK, ''
    detail = ''
    if mask['size'] != size:
        detail = f'size={mask["size"]!r:.40}, the image is {size}'
    elif not (_fill if isinstance(counts, list) else _packed_fill)(counts, size):
        detail = f'counts that do not add up to the {size[0] * size[1]} pixels of the image, or are damaged'
    return ('run-length masks that do not fit their image', detail) if detail else ('', '')


def _fill(counts: list[Any], size: list[int]) -> bool:
    """Returns whether run lengths cover an image of `size`."""
    return all(type(count) is int and count >= 0 for count in counts) and sum(counts) == size[0] * size[1]


def _packed_fill(counts: str, size: list[int]) -> bool:
    """Returns whether packed run lengths cover an image of `size`: they fit into it, and not into a pixel less.

    pycocotools refuses counts that are too long, but fills what shorter ones leave with what the memory holds.
    """
    if not _PACKED.fullmatch(counts):
        return False
    try:
        run_lengths.decode(dict(size=size, counts=counts))
    except ValueError:
        return False
    try:
        run_lengths.decode(dict(size=[1, size[0] * size[1] - 1], counts=counts))
    except ValueError:
        return True
    return False


def _is_ordinary(polygon: Any, size: list[int]) -> bool:
    """Returns True for most polygons without a problem, by built-in functions: COCO has tens of millions of values."""
    if type(polygon) is not list or len(polygon) < 6 or len(polygon) % 2 or not set(map(type, polygon)) <= {int, float}:
        return False
    (height, width), xs, ys = size, polygon[::2], polygon[1::2]
    inside = -width <= min(xs) and max(xs) <= 2 * width and -height <= min(ys) and max(ys) <= 2 * height
    return inside and math.isfinite(sum(polygon))  # a comparison with NaN may be skipped by min and max


def _polygons_problem(polygons: list[Any], size: list[int]) -> tuple[str, str]:
    if all(_is_ordinary(polygon, size) for polygon in polygons):
        return '', ''
    if not all(isinstance(polygon, list) and all(map(_is_number, polygon)) for polygon in polygons):
        return 'polygons with values that are not numbers', ''
    if not all(len(polygon) >= 6 and len(polygon) % 2 == 0 for polygon in polygons):
        return _SHORT_MASK, ''
    # pycocotools walks along every edge pixel by pixel, wherever it leads.
    sides = [(polygon[axis::2], side) for polygon in polygons for axis, side in ((0, size[1]), (1, size[0]))]
    far = [value for values, side in sides for value in values if not -side <= value <= 2 * side]
    return ('polygons far outside their image', f'{far[0]:g}') if far else ('', '')
