"""CVAT for images: one XML file of many images, whose subsets may be splits."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from tokennorm.datasets.coco.entries import Content, Entry, as_coco
from tokennorm.datasets.splits import SPLIT_WORDS
from tokennorm.datasets.unread import head
from tokennorm.findings import Rule

UNREAD_SHAPE = Rule('unread-shape', 'warning', 'shapes that are not read',
    why='Of such files boxes and polygons are read.', do='Export as COCO to have them')  # fmt: skip


def is_cvat(path: Path) -> bool:
    """Returns whether a file is CVAT's XML of many images."""
    return path.suffix.lower() == '.xml' and re.search(r'<annotations[\s>]', head(path)) is not None


def subsets_in(path: Path) -> list[str]:
    """Returns the splits that the subsets of a file name; [] where they name fewer than two."""
    subsets = {one.decode(errors='replace').lower() for one in re.findall(rb'\ssubset="([^"]*)"', path.read_bytes())}
    splits = {SPLIT_WORDS[one] for one in subsets if one in SPLIT_WORDS}
    return sorted(splits) if len(splits) > 1 else []


def read_cvat(path: Path, split: str) -> Content:
    """Reads boxes and polygons, of the subset of a split where the subsets name splits. Other shapes are reported."""
    subsets = subsets_in(path)
    if subsets and split not in subsets:
        raise ValueError(f'{path} is divided already, by the subsets of its images: use {path.parent} as it is')
    try:
        root = ElementTree.parse(path).getroot()
        nodes = list(root.iter('image'))
        labels = [node.findtext('name', '') for node in root.iter('label') if node.findtext('type') != 'tag']
        names = list(dict.fromkeys([*labels, *(shape.get('label', '') for node in nodes for shape in _shapes(node))]))
        ids = {name: i for i, name in enumerate(names, 1)}
        if subsets:
            nodes = [node for node in nodes if SPLIT_WORDS.get(node.get('subset', '').lower()) == split]
        return as_coco([(_image(node), list(_objects(node, ids, split))) for node in nodes], names)
    except (ElementTree.ParseError, ValueError) as error:  # ValueError is that of a number
        raise ValueError(f'{path} cannot be read: {error}; export the annotations again') from error


def _image(node: ElementTree.Element) -> Entry:
    size = {key: int(value) for key in ('width', 'height') if (value := node.get(key, '')).isdigit()}
    return dict(file_name=node.get('name'), **size)


def _shapes(image: ElementTree.Element) -> list[ElementTree.Element]:
    return [shape for shape in image if shape.tag != 'tag']  # a class of the whole image


def _objects(image: ElementTree.Element, ids: Mapping[str, int], split: str) -> Iterator[Entry]:
    """The boxes and polygons of an image, with CVAT's attributes as in its COCO."""
    for shape in _shapes(image):
        category = dict(category_id=ids[shape.get('label', '')])
        if shape.tag == 'box':
            left, top, right, bottom = (float(shape.get(key, 'nan')) for key in ('xtl', 'ytl', 'xbr', 'ybr'))
            attributes = dict(occluded=shape.get('occluded') == '1', rotation=float(shape.get('rotation') or 0))
            yield category | dict(bbox=[left, top, right - left, bottom - top], attributes=attributes)
        elif shape.tag == 'polygon':
            points = shape.get('points', '').split(';')
            yield category | dict(segmentation=[[float(value) for point in points for value in point.split(',')]])
        else:
            UNREAD_SHAPE.report(split, items=[f'{shape.tag} of {image.get("name")}'])
