"""CVAT: its XML of many images, boxes that are stored before their rotation, and masks of its brush."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from tokennorm.datasets.coco.entries import Content, Entry, is_box, is_number
from tokennorm.datasets.coco.masks import box_and_area
from tokennorm.datasets.programs.reader import Reader, convert, head
from tokennorm.datasets.splits import SPLIT_WORDS, SPLITS
from tokennorm.datasets.tally import Tally
from tokennorm.findings import reports

_MOST_FILES = 10  # in a folder; one XML file for each image is Pascal VOC's


def find(near: Sequence[Path], _: Sequence[Path]) -> list[Path]:
    """Returns the XML files of many images."""
    paths = [path for path in near if path.suffix.lower() == '.xml']
    counts = Counter(path.parent for path in paths)
    few = (path for path in paths if counts[path.parent] <= _MOST_FILES)
    return [path for path in few if re.search(r'<annotations[\s>]', head(path))]


def read(path: Path, split: str, _: Path | None) -> Content:
    """Reads boxes and polygons of a split. Boxes with a rotation become the upright boxes around them."""
    import hotcoco

    content = convert(split, path, hotcoco.COCO.from_cvat, str(path))
    pairs = _of_split(list(zip(content['images'], ElementTree.parse(path).iter('image'), strict=True)), split, path)
    tally, of_image = Tally(split), {image['id']: list[Entry]() for image, _ in pairs}
    for one in content['annotations']:
        one['iscrowd'] = int(bool(one.get('iscrowd')))
        of_image.get(one['image_id'], []).append(one)
    for image, node in pairs:
        for box in node.iter('box'):
            if angle := _number(box.get('rotation')):
                left, top, right, bottom = (_number(box.get(key)) for key in ('xtl', 'ytl', 'xbr', 'ybr'))
                written = [left, top, right - left, bottom - top]
                same = (one for one in of_image[image['id']] if np.allclose(one['bbox'], written))
                if (one := next(same, None)) and tally('rotated-box', f'a box of {image["file_name"]}'):
                    one['bbox'] = turned(written, angle)
                    one['area'] = one['bbox'][2] * one['bbox'][3]
    tally.report()
    annotations = [one for one in content['annotations'] if one['image_id'] in of_image]
    return {**content, 'images': [image for image, _ in pairs], 'annotations': annotations}


def _of_split(pairs: list[tuple[Entry, ElementTree.Element]], split: str, path: Path) -> list[Any]:
    """The images of a split with their elements, of a file whose subsets name splits."""
    if not (names := splits(path)):
        return pairs
    if split not in SPLITS:
        raise ValueError(f'{path} is divided already, by the subsets of its images: use {path.parent} as it is')
    unlabeled = [image['file_name'] for (image, _), name in zip(pairs, names, strict=True) if name is None]
    in_train = bool(unlabeled) and not reports('unlabeled-subset', split, items=unlabeled)
    chosen = {split, None} if in_train and split == 'train' else {split}
    return [pair for pair, name in zip(pairs, names, strict=True) if name in chosen]


def splits(path: Path) -> list[str | None]:
    """Returns the split that the subset of each image names; [] where they name fewer than two."""
    if b' subset="' not in (content := path.read_bytes()):
        return []
    subsets = (re.search(rb'\ssubset="([^"]*)"', image) for image in re.findall(rb'<image\s[^>]*>', content))
    names = [SPLIT_WORDS.get(one[1].decode(errors='replace').lower()) if one else None for one in subsets]
    return names if len(set(names) - {None}) > 1 else []


READER = Reader('CVAT', find, read, splits)


def turn_boxes(contents: Mapping[str, Content]) -> dict[str, Content]:
    """Makes boxes of its COCO export that have a rotation, and no mask, the upright boxes around them."""
    return {split: _with_changes(split, content, _turned) for split, content in contents.items()}


def read_brush_masks(contents: Mapping[str, Content]) -> dict[str, Content]:
    """Makes single objects of the masks of its brush, which its COCO export marks as crowds.

    So are crowds by its attribute `is_crowd`, which are rare: the file has no difference.
    """
    return {split: _with_changes(split, content, _single) for split, content in contents.items()}


def turn_box_of_xml(node: ElementTree.Element, box: Sequence[float], tally: Tally, label: str) -> Sequence[float]:
    """The same for an object of its Pascal VOC export, which has an element `occluded`: x, y, width, height."""
    values = (one.findtext('value') for one in node.iter('attribute') if one.findtext('name') == 'rotation')
    angle = _number(next(values, None)) if node.find('occluded') is not None else 0.0
    return turned(box, angle) if angle and tally('rotated-box', label) else box


def turned(box: Sequence[float], angle: float) -> list[float]:
    """Returns the upright box around a box that is turned by degrees around its center."""
    x, y, w, h = box
    cos, sin = abs(math.cos(math.radians(angle))), abs(math.sin(math.radians(angle)))
    width, height = w * cos + h * sin, w * sin + h * cos
    return [x + (w - width) / 2, y + (h - height) / 2, width, height]


def _with_changes(split: str, content: Content, change: Any) -> Content:
    tally = Tally(split)
    entries = content.get('annotations', ())
    changes = [change(one, tally) if _is_of_cvat(one) else {} for one in entries]
    tally.report()
    if not any(changes):
        return content
    changed = [{**one, **new} if new else one for one, new in zip(entries, changes, strict=True)]
    return {**content, 'annotations': changed}


def _is_of_cvat(one: Entry) -> bool:
    return isinstance(attributes := one.get('attributes'), dict) and 'occluded' in attributes


def _turned(one: Entry, tally: Tally) -> Entry:
    angle, box, mask = one['attributes'].get('rotation'), one.get('bbox'), one.get('segmentation')
    is_turned = is_number(angle) and angle and angle is not True and is_box(box)
    has_mask = bool(mask) and (isinstance(mask, dict) or box_and_area(mask, None) is not None)
    if is_turned and not has_mask and tally('rotated-box', f'annotation {one.get("id")}'):
        return dict(bbox=turned(box, angle), attributes=one['attributes'] | {'rotation': 0}, area=None)
    return {}


def _single(one: Entry, tally: Tally) -> Entry:
    is_crowd = isinstance(one.get('segmentation'), dict) and str(one.get('iscrowd')).lower() in ('1', 'true')
    return dict(iscrowd=0) if is_crowd and tally('crowd-as-object', f'annotation {one.get("id")}') else {}


def _number(text: str | None) -> float:
    with suppress(ValueError):
        value = float(text or 0)
        return value if math.isfinite(value) else 0.0
    return 0.0
