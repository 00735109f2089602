"""Inspects the splits of a dataset in COCO format for problems that stop training, or spoil it silently."""

import hashlib
import math
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

from tokennorm.datasets.coco.normalizing import (
    covers,
    id_text,
    is_box,
    is_number,
    is_size,
    original_id,
)
from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.datasets.splits import CocoSplit
from tokennorm.messages import did_you_mean, shorten

_OTHER_SIZE = (
    'image files whose size, after rotation by EXIF, is not that of the annotation file, so that boxes are misplaced'
)
_MOST_CLASSES = 100  # in a table; of more only the 20 with most objects in the first split
_CROWDS = 'crowds (iscrowd=1, difficult in Pascal VOC), neither learned nor missed. Set it to 0 for single objects'
_PARTLY_OUTSIDE = 'boxes partly outside their image'
_NO_MASK = 'annotations without a segmentation'
_NOT_NUMBERS = 'polygons with values that are not numbers'
_OUTSIDE_BOX = (
    'masks outside their box. Are they fractions, or y before x, or run lengths by rows? COCO has x, y in pixels, and '
    'run lengths by columns that begin with the background'
)
_SHORT_MASK = 'segmentations that are neither polygons of 3 points or more nor run lengths'


@dataclass
class Inspection:
    """Problems of a dataset, and its counts."""

    # problems that would stop a training run or make its evaluation wrong, one line each
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # problems that leave data out or make its use doubtful
    table: str = ''  # names and counts, Markdown
    most_objects: int = 0  # number of objects in the image that has most
    # problems that would stop training on masks, or make their evaluation wrong; boxes are not affected
    mask_errors: list[str] = field(default_factory=list)

    def text(self, with_masks: bool = True) -> str:
        """Returns the table and all problems, without those of masks for a detector of boxes."""
        masks = [f'not usable for masks: {line}' for line in self.mask_errors if with_masks]
        lines = [f'ERROR: {line}' for line in self.errors] + [f'warning: {line}' for line in self.warnings]
        return '\n'.join([*([self.table, ''] if self.table else []), *(lines + masks or ['No problems found.'])])


def inspect_splits(splits: Mapping[str, CocoSplit], open_images: bool = True) -> Inspection:
    """Inspects annotations, image files and how the splits fit together; only the entries if these have errors.

    Every image file is opened to read its size and its end. Only files that do not end as their format does are
    decoded.
    """
    found = Inspection()
    for split in splits.values():
        inspect_entries(split, found)
    if found.errors:
        return found
    opened = [_open_images(split) for split in splits.values()] if open_images else []
    for split in splits.values():
        inspect_objects(split, found)
    _compare_categories(splits, found)
    for split, results in zip(splits.values(), opened, strict=False):
        inspect_images(split, results, found)
    if open_images:
        find_shared_images(splits, found)
    found.table = _table(splits)
    return found


def all_have_masks(splits: Mapping[str, CocoSplit]) -> bool:
    """Returns whether there are objects, and each has a segmentation that training and evaluation can use."""
    some = False
    for split in splits.values():
        outside = []
        sizes = {image['id']: [image['height'], image['width']] for image in split.content['images']}
        for one in split.content['annotations']:
            some = some or not one.get('iscrowd')
            if one.get('image_id') in sizes:
                if mask_problem(one.get('segmentation'), sizes[one['image_id']]):
                    return False
                outside += [one] if _is_outside(one) else []
        if _too_many(outside, split):
            return False
    return some


# ---- entries ----


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_CHECKS = (
    ('images', 'file_name', _is_name),
    ('images', 'width', is_size),
    ('images', 'height', is_size),
    ('categories', 'name', _is_name),
    ('annotations', 'bbox', is_box),
    ('annotations', 'bbox_mode', lambda value: value in (None, 1)),  # of detectron2; 1 is COCO's
    ('annotations', 'area', is_number),
)


def inspect_entries(split: CocoSplit, found: Inspection) -> None:
    """Adds errors for keys that are missing or of a wrong type, and for ids and names that are not unique."""
    for kind, key, is_valid in _CHECKS:
        wrong = [
            f'{_label(entry)} ({key}={entry.get(key)!r:.40})'
            for entry in split.content[kind]
            if not is_valid(entry.get(key))
        ]
        found.errors += named(split, {f'{kind} without a valid {key}': wrong})
    for kind, key in (('images', 'id'), ('categories', 'id'), ('categories', 'name')):
        text = id_text if key == 'id' else repr
        counts = Counter(text(entry.get(key)) for entry in split.content[kind])
        twice = [value for value, count in counts.items() if count > 1]
        found.errors += named(split, {f'{kind} with the same {key}': twice})
    if not split.content['categories'] or not split.content['images']:
        found.errors.append(f'{split.name}: {split.source} has no images or no categories')


def _label(entry: Mapping[str, Any]) -> str:
    return f'{entry.get("file_name") or entry.get("name") or f"id {original_id(entry)}"!s:.200}'


# ---- boxes and masks ----


def inspect_objects(split: CocoSplit, found: Inspection) -> None:
    """Adds the problems of boxes and segmentations to `found`, and the largest number of objects in an image.

    Entries must be valid.
    """
    annotations = split.content['annotations']
    found.warnings += [f'{split.name}: {note}' for note in split.notes]
    images = {image['id']: image for image in split.content['images']}
    categories = {category['id'] for category in split.content['categories']}
    fate = 'not trained on' if split.name == 'train' else 'which the evaluation counts as missed'
    boxes: dict[str, list[str]] = defaultdict(list)
    masks: dict[str, list[str]] = defaultdict(list)
    objects: Counter[Any] = Counter()
    for annotation in annotations:
        image = images.get(annotation['image_id'])
        if image is None:
            boxes['annotations of an image that is not listed, ignored'].append(f'annotation {original_id(annotation)}')
            continue
        problem = _box_problem(annotation, image, categories, fate)
        is_used = problem in ('', _PARTLY_OUTSIDE)
        if is_used and not annotation.get('iscrowd'):
            objects[image['id']] += 1
        of_mask = mask_problem(annotation.get('segmentation'), [image['height'], image['width']])
        if is_used and not of_mask and _is_outside(annotation):
            of_mask = _OUTSIDE_BOX
        for which, kind in ((boxes, problem), (masks, of_mask)):
            if kind:
                which[kind].append(f'annotation {original_id(annotation)} of {image["file_name"]}')
    if split.name == 'train' and _SHORT_MASK in masks:
        boxes[f'{_SHORT_MASK}, not trained on'] = masks.pop(_SHORT_MASK)
    if not _too_many(masks[_OUTSIDE_BOX], split):  # as of objects whose boxes are those of their visible parts
        boxes[_OUTSIDE_BOX] = masks.pop(_OUTSIDE_BOX)
    found.warnings += named(split, boxes)
    if len(masks[_NO_MASK]) == len(annotations) > 0:
        found.mask_errors.append(f'{split.name}: no annotation has a segmentation')
    else:
        found.mask_errors += named(split, masks)
    beyond = len(boxes[_PARTLY_OUTSIDE])
    if _too_many(boxes[_PARTLY_OUTSIDE], split) and all(
        x1 < x2 <= image['width'] + 1 and y1 < y2 <= image['height'] + 1
        for (x1, y1, x2, y2), image in ((a['bbox'], images.get(a['image_id'])) for a in annotations)
        if image is not None
    ):
        found.errors.append(
            f'{split.name}: {beyond} boxes reach beyond their image and would fit as [x1, y1, x2, y2]: '
            'COCO has [x, y, width, height], and YOLO the center, width and height'
        )
    elif beyond:
        pairs = [(one['bbox'], images[one['image_id']]) for one in annotations if one['image_id'] in images]
        lines = [f'{split.name}: {line}' for line in _shifted_boxes(pairs)]
        is_sure = beyond >= 10 and _too_many(boxes[_PARTLY_OUTSIDE], split)
        is_sure = is_sure and not any(one.get('segmentation') for one in annotations)  # which would fit as they are
        (found.errors if is_sure else found.warnings).extend(lines)
    found.most_objects = max(found.most_objects, *objects.values(), 0)
    crowds = [f'annotation {original_id(one)}' for one in annotations if one.get('iscrowd')]
    masks_of_crowds = sum(bool(one.get('iscrowd')) and isinstance(one.get('segmentation'), dict) for one in annotations)
    # COCO has 1% with masks, and VOC 20% difficult objects. Some programs mark each mask of several parts.
    if objects and (_too_many(crowds, split) or 20 * masks_of_crowds > len(annotations)):
        found.warnings += named(split, {_CROWDS: crowds})
    if not objects:
        counts = Counter({problem: len(items) for problem, items in boxes.items() if items})
        counts += Counter({_CROWDS: len(crowds)})
        cause = ''.join(f': {problem}: {count}' for problem, count in counts.most_common(1))
        hint = '. Are they fractions? COCO has pixels' if 'without area' in cause else ''
        found.errors.append(f'{split.name}: no image has an object to learn from or to evaluate on{cause}{hint}')
    if split.name != 'train' and any('neg_category_ids' in image for image in images.values()):  # LVIS
        found.warnings.append(
            f'{split.name}: its objects are not annotated in every image (neg_category_ids of LVIS). AP counts '
            'detections of the others as false, and is lower than by LVIS'
        )
    unused = [name for name, count in split.objects_by_class().items() if not count]
    found.warnings += named(split, {'classes without an example': unused})


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


def _shifted_boxes(pairs: list[tuple[list[float], Mapping[str, Any]]]) -> Iterator[str]:
    """Whether boxes, some of them far beyond their image, are all inside if they are moved by half their size."""
    boxes = np.array([box for box, _ in pairs], float)
    ends = np.array([(image['width'], image['height']) for _, image in pairs])
    corners, sides = boxes[:, :2], np.maximum(boxes[:, 2:], 1)
    if not (np.maximum(-corners, corners + sides - ends) > sides / 4).any():
        return
    for place, share, change in (('top left corners', 0.5, 'add'), ('centers', -0.5, 'subtract')):
        moved = corners + share * sides
        if (moved >= -1).all() and (moved + sides <= ends + 1).all():
            yield (
                f'all boxes are inside their image if x and y are their {place}. COCO has corners, and YOLO centers: '
                f'{change} half of the sides'
            )


def mask_problem(mask: Any, size: list[int]) -> str:
    """The problem of a segmentation of an image of `size` (height, width), in words, or ''."""
    if not mask:
        return _NO_MASK
    if isinstance(mask, list):
        return next(filter(None, (_polygon_problem(polygon, size) for polygon in mask)), '')
    if not isinstance(mask, dict):
        return 'segmentations that are neither lists nor run lengths'
    fits = mask.get('size') == size and covers(mask.get('counts'), size[0] * size[1])
    return '' if fits else 'run-length masks whose size or counts are not those of their image'


def _polygon_problem(polygon: Any, size: list[int]) -> str:
    """As `mask_problem`, of one polygon, by built-in functions: COCO has tens of millions of values."""
    if type(polygon) is not list or not set(map(type, polygon)) <= {int, float}:
        return _NOT_NUMBERS
    if len(polygon) < 6 or len(polygon) % 2:
        return _SHORT_MASK
    for values, side in ((polygon[::2], size[1]), (polygon[1::2], size[0])):
        if min(values) < -side or max(values) > 2 * side:  # pycocotools walks along every edge, wherever it leads
            return 'polygons far outside their image'
    return '' if math.isfinite(sum(polygon)) else _NOT_NUMBERS  # min and max may skip NaN


def _is_outside(annotation: Mapping[str, Any]) -> bool:
    """Whether a polygon begins outside of its box, or most of a run-length mask is; of a mask without a problem.

    A quarter of a side is left for boxes that are not exact.
    """
    mask, (x, y, w, h) = annotation['segmentation'], annotation['bbox']
    near_x, near_y = 0.25 * w + 2, 0.25 * h + 2
    if not isinstance(mask, list):
        rows, columns = map(int, mask['size'])
        is_list, size = isinstance(mask['counts'], list), [rows, columns]
        packed = run_lengths.frPyObjects(mask, *size) if is_list else {**mask, 'size': size}
        left, top = max(x - near_x, 0), max(y - near_y, 0)
        sides = [left, top, min(x + w + near_x, columns) - left, min(y + h + near_y, rows) - top]
        inside = 0
        if min(sides[2:]) > 0:
            (box,) = run_lengths.frPyObjects(np.array([sides], float), *size)
            inside = int(run_lengths.area(run_lengths.merge([packed, box], intersect=True)))
        return inside < int(run_lengths.area(packed)) / 2
    return not all(
        -near_x <= polygon[0] - x <= w + near_x and -near_y <= polygon[1] - y <= h + near_y for polygon in mask
    )


def _too_many(items: list[Any], split: CocoSplit) -> bool:
    """Whether more than a quarter of a split's annotations have a problem, which is then one of the whole file."""
    return len(items) > len(split.content['annotations']) / 4


# ---- image files ----


def _open_images(split: CocoSplit) -> Iterator[tuple[str, tuple[int, int], bool]]:
    names = [image['file_name'] for image in split.content['images']]
    return map_files(partial(open_image, split.image_dir), names, f'Images of {split.name}')


def inspect_images(split: CocoSplit, opened: Iterable[tuple[str, tuple[int, int], bool]], found: Inspection) -> None:
    """Adds what is wrong with the image files, of which `open_image` returned the results."""
    problems: dict[str, list[str]] = defaultdict(list, {_OTHER_SIZE: []})
    turned = 0
    for image, (problem, size, is_turned) in zip(split.content['images'], opened, strict=True):
        turned += is_turned
        label = f'{image["file_name"]} (id {original_id(image)})'
        if problem:
            problems[f'image files {problem} in {split.image_dir}'].append(label)
        elif size != (image['width'], image['height']):
            listed = f'{image["width"]}x{image["height"]}'
            problems[_OTHER_SIZE].append(f'{label[:-1]}, {size[0]}x{size[1]}, annotated {listed})')
    found.errors += named(split, problems)
    if turned:
        found.warnings.append(
            f'{split.name}: images that their EXIF turns: {turned} of {len(split.content["images"])}. They are turned '
            'upright, and the boxes are read as those of the upright image; compare the drawings'
        )


def find_shared_images(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Adds files with the same content in two splits, or twice in one, whatever their names."""
    by_size: dict[int, list[tuple[str, Path]]] = defaultdict(list)
    for split in splits.values():
        for path in (split.image_dir / image['file_name'] for image in split.content['images']):
            if path.is_file():
                by_size[path.stat().st_size].append((split.name, path))
    names: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))  # in each split
    for i, group in enumerate(_alike(_alike(by_size.values(), _end), _digest)):
        for split_name, path in group:
            names[i][split_name].append(path.name)
    for first, second in combinations(splits, 2):
        both = [(file[first][0], file[second][0]) for file in names.values() if first in file and second in file]
        if both:
            shared = [one if one == other else f'{one} = {other}' for one, other in both]
            found.warnings.append(f'images in both {first} and {second}: {list_items(shared)}')
    for split in splits:
        twice = [' = '.join(file[split]) for file in names.values() if len(file.get(split, ())) > 1]
        found.warnings += named(splits[split], {'images with the same content': twice})


def _alike(
    groups: Iterable[list[tuple[str, Path]]], function: Callable[[Path], Any]
) -> Iterable[list[tuple[str, Path]]]:
    """Divides groups of two files or more by the results of a function of the path."""
    files = [file for group in groups if len(group) > 1 for file in group]
    results: dict[Any, list[tuple[str, Path]]] = defaultdict(list)
    for file, result in zip(files, map_files(function, [path for _, path in files], 'Images of one size'), strict=True):
        results[result].append(file)
    return results.values()


def _end(path: Path) -> tuple[int, bytes]:
    """The size and the last bytes of a file, which differ in most images, without reading all of it."""
    with path.open('rb') as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 4096, 0))
        return size, file.read()


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


# ---- splits ----


def _compare_categories(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Adds classes that only one of two splits has, and names that a slip of the keyboard may have made two of."""
    first, *others = splits.values()
    names = [category['name'] for category in first.content['categories']]
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[_folded(name)].append(ascii(name))
    same = [' and '.join(group) for group in alike.values() if len(group) > 1]
    found.warnings += named(first, {'classes whose names differ only in case, spaces or forms of a character': same})
    for split in others:
        theirs = [category['name'] for category in split.content['categories']]
        if missing := [name for name in names if name not in theirs]:
            extra = [name for name in theirs if name not in names]
            if set(map(_folded, missing)) & set(map(_folded, extra)):  # they may look alike
                missing, extra = list(map(ascii, missing)), list(map(ascii, extra))
            found.errors.append(
                f'{split.name}: the classes are not those of {first.name}: without {list_items(missing)}, but with '
                f'{list_items(extra)}. Use one list of names for both'
            )
        counts = split.objects_by_class()
        extra = [f'{name} ({counts[name]} objects)' for name in theirs if name not in names]
        problem = f'categories that {first.name} does not have, with their objects ignored'
        found.warnings += named(split, {problem: extra})
        if first.name == 'train':
            learned = [name for name, count in first.objects_by_class().items() if count]
            words = [name for name in learned if not re.search(r'\d', name)]
            new = [f'{name}{did_you_mean(name, words)}' for name in names if name not in learned and counts.get(name)]
            problem = 'classes with objects of which train has none, so that AP counts them as missed'
            found.warnings += named(split, {problem: new})


def _folded(name: str) -> str:
    """A name without case, repeated spaces, characters of no width, and forms that Unicode calls compatible."""
    visible = (one for one in unicodedata.normalize('NFKC', name) if unicodedata.category(one) != 'Cf')
    return ' '.join(''.join(visible).casefold().split())


def _table(splits: Mapping[str, CocoSplit]) -> str:
    """Counts per split and per class, Markdown."""
    rows = ['| split | images | without objects | objects | crowds | most in an image |', '|---|---|---|---|---|---|']
    for split in splits.values():
        annotations = split.content['annotations']
        objects = Counter(a['image_id'] for a in annotations if not a.get('iscrowd'))
        empty = sum(image['id'] not in objects for image in split.content['images'])
        crowds = sum(bool(a.get('iscrowd')) for a in annotations)
        cells = [split.name, len(split.content['images']), empty, objects.total(), crowds]
        rows.append('| ' + ' | '.join(map(str, [*cells, max(objects.values(), default=0)])) + ' |')
    counts = [split.objects_by_class() for split in splits.values()]
    rows += ['', f'| class | {" | ".join(splits)} |', '|---|' + '---|' * len(splits)]
    shown = list(counts[0]) if len(counts[0]) <= _MOST_CLASSES else [name for name, _ in counts[0].most_common(20)]
    rows += [f'| {name} | {" | ".join(str(count[name]) for count in counts)} |' for name in shown]
    if others := counts[0].keys() - set(shown):
        sums = (str(sum(count[name] for name in others)) for count in counts)
        rows.append(f'| {len(others)} other classes | {" | ".join(sums)} |')
    return '\n'.join(rows)


# ---- words ----


def named(split: CocoSplit, problems: Mapping[str, list[str]]) -> list[str]:
    """Returns one line per problem, with the items of a split that have it; none for a problem without items."""
    return [f'{split.name}: {problem}: {list_items(items)}' for problem, items in problems.items() if items]


def list_items(items: list[str]) -> str:
    """The count if there are several, with the first few and how many more in parentheses."""
    return f'{len(items)} ({shorten(items, 5)})' if len(items) > 1 else shorten(items)
