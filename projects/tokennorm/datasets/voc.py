"""Pascal VOC folders: one XML file per image, with lists in `ImageSets/Main/`, in a folder per split, or unsplit."""

import re
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tokennorm.datasets.coco.folder import SPLIT_NAMES, SPLIT_WORDS, SPLITS
from tokennorm.datasets.converted import LabeledImage, LabelFolder, coco_object
from tokennorm.datasets.image_files import IMAGE_SUFFIXES, is_data, list_files, read_text

_IMAGE_FOLDERS = ('JPEGImages', 'images', 'Images')
_VOC = re.compile(rb'<annotation[\s>]')  # CVAT's XML of many images has <annotations>


def find_voc(root: Path) -> LabelFolder | None:
    """The Pascal VOC dataset of a folder, classes in alphabetical order as VOC's own; None if it has no XML files.

    Without lists or folders of splits, all images are train.
    """
    if not root.is_dir():
        return None
    splits = _from_image_sets(root) or _from_folders(root)
    if not splits:
        return None
    trees = (_read_xml(entry.labels) for entries in splits.values() for entry in entries)
    classes = {_class_name(node) for tree in trees for node in tree.findall('object')}
    if not classes:
        raise ValueError(f'{root}: no object in any of its XML files')
    names = sorted(classes)
    return LabelFolder('Pascal VOC', root, names, splits, partial(_read_labels, names))


def _read_labels(classes: list[str], entry: LabeledImage, size: tuple[int, int]) -> list[dict[str, Any]]:
    """The objects of an image. VOC's corners count pixels from 1 and include the last one.

    Objects marked `difficult` become crowds: as in VOC's evaluation, they are neither trained on nor missed.
    """
    tree = _read_xml(entry.labels)
    size_keys = [key for key in ('size/width', 'size/height') if tree.findtext(key)]
    stated = tuple(_number(tree, key, entry.labels) for key in size_keys)
    if len(stated) == 2 and all(stated) and stated != size:  # some tools write 0
        width, height = stated
        raise ValueError(f'{entry.labels}: size is {width:g}x{height:g}, but {entry.image} is {size[0]}x{size[1]}')
    objects = []
    for node in tree.findall('object'):
        polygon = _polygon(node, entry.labels)
        box = node.find('bndbox')
        if box is None and not polygon:
            raise ValueError(f'{entry.labels}: an object {node.findtext("name")!r} has no bndbox')
        if box is None:  # around the corners, as for pixels from 1 to the last one
            x1, y1, x2, y2 = min(polygon[::2]) + 1, min(polygon[1::2]) + 1, max(polygon[::2]), max(polygon[1::2])
        else:
            x1, y1, x2, y2 = (_number(box, key, entry.labels) for key in ('xmin', 'ymin', 'xmax', 'ymax'))
        if x2 < x1 or y2 < y1:
            raise ValueError(f'{entry.labels}: a bndbox ends before it begins: {x1:g}, {y1:g}, {x2:g}, {y2:g}')
        category = classes.index(_class_name(node)) + 1
        crowd = (node.findtext('difficult') or '0').strip() == '1'
        objects.append(coco_object(category, (x1 - 1, y1 - 1, x2 - x1 + 1, y2 - y1 + 1), polygon, crowd))
    return objects


def _from_image_sets(root: Path) -> dict[str, list[LabeledImage]]:
    """`ImageSets/Main/{train,val,test}.txt`, in the folder or in folders such as VOC2007 and VOC2012 in it."""
    splits: dict[str, list[LabeledImage]] = {}
    places = ('', '*/', 'VOCdevkit/*/')
    for file in (file for place in places for file in sorted(root.glob(f'{place}ImageSets/Main/*.txt'))):
        split, folder = SPLIT_WORDS.get(file.stem.lower()), file.parents[2]
        if split is None or not is_data(file.name):
            continue
        lines = [line.strip() for line in read_text(file).splitlines() if line.strip()]
        ids = [_listed(line, folder / 'Annotations') for line in lines]
        labels = [folder / 'Annotations' / f'{one}.xml' for one in ids]
        missing = [str(path) for path in labels if not path.is_file()]
        if missing and split != 'test':
            raise ValueError(f'{file}: {len(missing)} of {len(ids)} annotations not found, such as {missing[0]}')
        if not missing and labels:
            splits.setdefault(split, []).extend(_entries(labels))
    return {split: splits[split] for split in SPLITS if split in splits}


def _listed(line: str, folder: Path) -> str:
    """The image name of a line: all of it, the part in quotes, or the first word, before VOC's 1 or -1."""
    quoted = re.match(r'"(.*)"', line)
    whole = quoted[1] if quoted else line
    known = (folder / f'{whole}.xml').is_file()
    return whole if quoted or known else re.sub(r'\s+-?[01]$', '', line) if ' ' in line else line


def _from_folders(root: Path) -> dict[str, list[LabeledImage]]:
    """XML files in folders `train`, `valid` or `val`, and `test`. Without these, all in two levels are train."""
    splits = {}
    folders = {entry.name.lower(): entry for entry in sorted(root.iterdir()) if entry.is_dir() and is_data(entry.name)}
    for split, names in SPLIT_NAMES.items():
        for folder in (folders[name] for name in names if name in folders):
            if labels := [path for path in list_files(folder) if path.suffix.lower() == '.xml']:
                splits[split] = _entries(labels)
    if not splits:
        paths = (path for place in (root, *folders.values()) for path in sorted(place.glob('*.xml')))
        if labels := [path for path in paths if is_data(path.name) and _VOC.search(path.read_bytes()[:1000])]:
            splits['train'] = _entries(labels)
    return splits


def _entries(labels: list[Path]) -> list[LabeledImage]:
    images = {path: _find_image(path) for path in labels}
    missing = [path for path, image in images.items() if image is None]
    if missing:
        raise ValueError(f'{len(missing)} of {len(labels)} XML files have no image, such as {missing[0]}')
    return [LabeledImage(image, path) for path, image in images.items() if image]


def _find_image(labels: Path) -> Path | None:
    """The image with the stem of an XML file, or that it names: next to it, one level higher, or in an image folder."""
    places = [folder / name for folder in labels.parents[:2] for name in ('', *_IMAGE_FOLDERS)]
    suffixes = [*IMAGE_SUFFIXES, *map(str.upper, IMAGE_SUFFIXES)]
    found = _first_file(places, [labels.stem + suffix for suffix in suffixes])
    return found or _first_file(places, [(_read_xml(labels).findtext('filename') or '').strip()])


def _first_file(places: list[Path], names: list[str]) -> Path | None:
    return next((place / name for place in places for name in names if name and (place / name).is_file()), None)


def _read_xml(path: Path | None) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f'{path} cannot be read as XML: {error}') from error


def _class_name(node: ElementTree.Element) -> str:
    return (node.findtext('name') or '').strip()


def _number(node: ElementTree.Element, key: str, labels: Path | None) -> float:
    text = node.findtext(key)
    try:
        value = float(text or '')
    except ValueError:
        value = float('nan')
    if not abs(value) < 1e9:
        raise ValueError(f'{labels}: {node.tag}.{key}={text!r} is not a number')
    return value


def _polygon(node: ElementTree.Element, labels: Path | None) -> list[float]:
    """The corners x1, y1, x2, y2, ... of an object's polygon, counted from 0; [] without one."""
    polygon = node.find('polygon')
    if polygon is None or polygon.find('x3') is None:
        return []
    return [_number(polygon, f'{axis}{i}', labels) - 1 for i in range(1, len(polygon) // 2 + 1) for axis in 'xy']
