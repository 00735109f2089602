"""Checks the segmentations of one split: polygons and run-length masks."""

from collections import defaultdict
from typing import Any

from tokennorm.datasets.coco.describe import list_items
from tokennorm.datasets.coco.entries import is_number
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.found import Inspection
from tokennorm.datasets.coco.rle import rle_problem

_NONE = 'annotations without a segmentation'
_SHORT = 'segmentations that are neither polygons of 3 points or more nor run lengths'


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
    if split.name == 'train' and _SHORT in problems:
        found.warnings.append(f'{split.name}: {_SHORT}, not trained on: {list_items(problems.pop(_SHORT))}')
    if len(problems[_NONE]) == len(split.content['annotations']) > 0:
        found.mask_errors.append(f'{split.name}: no annotation has a segmentation')
        return
    found.mask_errors += [f'{split.name}: {what}: {list_items(labels)}' for what, labels in problems.items() if labels]


def mask_problem(mask: Any, size: list[int]) -> tuple[str, str]:
    """The problem of a segmentation of an image of `size` (height, width), and a detail; ('', '') without a problem."""
    if not mask:
        return _NONE, ''
    if isinstance(mask, list):
        return _polygons_problem(mask, size)
    if not isinstance(mask, dict):
        return 'segmentations that are neither lists nor run lengths', ''
    if not isinstance(mask.get('counts'), list | str) or mask.get('size') is None:
        return _SHORT, ''
    problem = rle_problem(mask, size)
    return ('run-length masks that do not fit their image', problem) if problem else ('', '')


def _polygons_problem(polygons: list[Any], size: list[int]) -> tuple[str, str]:
    if not all(isinstance(polygon, list) and all(map(is_number, polygon)) for polygon in polygons):
        return 'polygons with values that are not numbers', ''
    if not all(len(polygon) >= 6 and len(polygon) % 2 == 0 for polygon in polygons):
        return _SHORT, ''
    # pycocotools walks along every edge pixel by pixel, wherever it leads.
    far = [
        v
        for polygon in polygons
        for axis, side in ((0, size[1]), (1, size[0]))
        for v in polygon[axis::2]
        if not -side <= v <= 2 * side
    ]
    return ('polygons far outside their image', f'{far[0]:g}') if far else ('', '')
