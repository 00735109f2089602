"""Checks the boxes of one split against their images."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from tokennorm.datasets.coco.categories import objects_by_class
from tokennorm.datasets.coco.describe import list_items
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.found import Inspection

_PARTLY_OUTSIDE = 'boxes partly outside their image'


def inspect_boxes(split: CocoSplit, found: Inspection) -> None:
    """Adds the problems of boxes to `found`, and the largest number of objects in an image. Entries must be valid."""
    images = {image['id']: image for image in split.content['images']}
    categories = {category['id'] for category in split.content['categories']}
    fate = 'not trained on' if split.name == 'train' else 'which the evaluation counts as missed'
    problems: dict[str, list[str]] = defaultdict(list)
    objects: Counter[Any] = Counter()
    for annotation in split.content['annotations']:
        image = images.get(annotation['image_id'])
        if image is None:
            problems['annotations of an image that is not listed, ignored'].append(f'annotation {annotation["id"]}')
            continue
        problem = _box_problem(annotation, image, categories, fate)
        if problem:
            problems[problem].append(f'annotation {annotation["id"]} of {image["file_name"]}')
        if problem in ('', _PARTLY_OUTSIDE) and not annotation.get('iscrowd'):
            objects[image['id']] += 1
    found.warnings += [f'{split.name}: {what}: {list_items(labels)}' for what, labels in problems.items()]
    annotations = split.content['annotations']
    beyond = len(problems[_PARTLY_OUTSIDE])
    if beyond > len(annotations) / 4 and all(_fits_as_corners(annotation, images) for annotation in annotations):
        found.errors.append(
            f'{split.name}: {beyond} boxes reach beyond their image and would fit as [x1, y1, x2, y2]: '
            'COCO has [x, y, width, height]'
        )
    if split.name != 'train' and any(annotation['id'] == 0 for annotation in annotations):
        found.errors.append(
            f'{split.name}: an annotation has the id 0, which the evaluation takes for no match; count from 1'
        )
    found.most_objects = max(found.most_objects, *objects.values(), 0)
    if not objects:
        found.errors.append(f'{split.name}: no image has an object to learn from or to evaluate on')
    unused = [name for name, count in objects_by_class(split).items() if not count]
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
