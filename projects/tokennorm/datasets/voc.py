"""Pascal VOC folders: one XML file per image, with lists in `ImageSets/Main/`, in a folder per split, or unsplit."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tokennorm.datasets.converted import LabeledImage, LabelFolder, coco_object
from tokennorm.datasets.image_files import IMAGE_SUFFIXES, is_data, left_out, list_files, read_text
from tokennorm.datasets.programs import TURN_BOX
from tokennorm.datasets.splits import SPLIT_NAMES, SPLIT_WORDS, SPLITS
from tokennorm.datasets.tally import Tally
from tokennorm.findings import RULES, refuse, reports

_IMAGE_FOLDERS = ('JPEGImages', 'images', 'Images', 'data')
_CORNER = 'xmin', 'ymin'
_ZERO = re.compile(r'\s*(-?0+(\.0*)?|0*\.\d+)\s*')  # below the first pixel of VOC, 1
_LISTS = ('ImageSets/Main/*.txt', 'ImageSets/*.txt')
_DECLARED = re.compile(rb'<\?xml[^>]*encoding=["\']([\w.-]+)')
_VOC = re.compile(rb'<annotation[\s>]')  # XML of many images has <annotations>


def find_voc(root: Path) -> LabelFolder | None:
    """The Pascal VOC dataset of a folder, classes in alphabetical order as VOC's own; None if it has no XML files.

    Without lists or folders of splits, all images are train.
    """
    if not root.is_dir():
        return None
    listed = _from_image_sets(root)
    splits = listed or _from_folders(root)
    if not splits:
        return None
    trees = [_read_xml(entry.labels) for entries in splits.values() for entry in entries if entry.labels]
    objects = [node for tree in trees for node in tree.findall('object')]
    if not objects:
        refuse('no-objects', f'{root}: no object in any of its XML files')
    classes = sorted({_class_name(node) for node in objects})
    first = next(iter(splits))
    at_zero = sum(any(_ZERO.fullmatch(node.findtext(f'bndbox/{key}') or '') for key in _CORNER) for node in objects)
    counts_from_0 = at_zero > 0 and reports('pixels-from-0', first, f'{RULES["pixels-from-0"].summary}: {at_zero}')
    folders = {entry.labels.parent for entries in splits.values() for entry in entries if entry.labels}
    if any((place / 'SegmentationObject').is_dir() for folder in folders for place in list(folder.parents)[:2]):
        reports('unread-masks', first)
    used = {entry.image for entries in splits.values() for entry in entries}
    for split, entries in splits.items():
        if background := [str(entry.image) for entry in entries if entry.labels is None]:
            reports('image-without-label', split, items=background)
        if not listed and (unused := _images_beside(entries, used)):
            reports('image-without-xml', split, items=unused)
    return LabelFolder('Pascal VOC', root, classes, splits, (classes, int(not counts_from_0)), _read_labels)


def _read_labels(
    rules: tuple[list[str], int], entry: LabeledImage, size: tuple[int, int], tally: Tally
) -> list[dict[str, Any]]:
    """The objects of an image, by the classes and the number of the first pixel.

    VOC's corners count pixels from 1 and include the last one. If they count from 0, they do not include it. Objects
    marked `difficult` become crowds: as in VOC's evaluation, they are not missed. mmdet's detectors train
    on their place as background.
    """
    if entry.labels is None:
        return []
    tree, objects = _read_xml(entry.labels), []
    stated = tuple(_number(tree, key) for key in ('size/width', 'size/height') if tree.findtext(key))
    if len(stated) == 2 and all(stated) and stated != size:  # some tools write 0
        width, height = stated
        tally('voc-size', f'{entry.labels.name} ({width:g}x{height:g}, image {size[0]}x{size[1]})')
    for node in tree.findall('object'):
        try:
            objects.append(_read_object(node, *rules, tally, entry.labels.name))
        except ValueError as error:
            tally('invalid-label', f'{entry.labels.name}: {error}')
    return objects


def _read_object(node: ElementTree.Element, classes: list[str], first: int, tally: Tally, label: str) -> dict[str, Any]:
    polygon = [value - first for value in _polygon(node)]
    box, *others = node.findall('bndbox') or [None]
    if others or (box is None and not polygon):
        raise ValueError(f'an object {_class_name(node)!r} has {len(node.findall("bndbox"))} bndbox, not 1')
    if box is None:  # around the corners
        left, top, right, bottom = min(polygon[::2]), min(polygon[1::2]), max(polygon[::2]), max(polygon[1::2])
    else:
        left, top, right, bottom = (_number(box, key) for key in (*_CORNER, 'xmax', 'ymax'))
        if right < left or bottom < top:
            raise ValueError(f'a bndbox ends before it begins: {left:g}, {top:g}, {right:g}, {bottom:g}')
        left, top = left - first, top - first
    xywh = TURN_BOX(node, (left, top, right - left, bottom - top), tally, label)
    is_crowd = (node.findtext('difficult') or '0').strip().lower() in ('1', 'true')
    return coco_object(classes.index(_class_name(node)) + 1, xywh, polygon, is_crowd)


def _from_image_sets(root: Path) -> dict[str, list[LabeledImage]]:
    """The lists `_LISTS` of train, val and test, in the folder or in folders such as VOC2007 and VOC2012 in it.

    Listed images without an XML file are background.
    """
    splits: dict[str, list[LabeledImage]] = {}
    for place in ('', '*/', 'VOCdevkit/*/'):
        found: dict[str, list[LabeledImage]] = {}
        for file in next(filter(None, (sorted(root.glob(place + names)) for names in _LISTS)), []):
            train = file.with_name('train.txt')
            alone = file.stem == 'trainval' and not (train.is_file() and train.stat().st_size)
            split = 'train' if alone else SPLIT_WORDS.get(file.stem.lower())
            if split is None or not is_data(file.name):
                continue
            folder = next(path for path in file.parents if path.name not in ('ImageSets', 'Main'))
            labels = [_listed(line.strip(), folder) for line in read_text(file).splitlines() if line.strip()]
            if not any(path.is_file() for path in labels) and (split == 'test' or file.parent.name != 'Main'):
                continue  # a test split without annotations, or a list of something else, such as segmentations
            if alone and (listed := file.with_name('val.txt')).is_file():  # trainval holds val, too
                val = {_listed(line.strip(), folder) for line in read_text(listed).splitlines()}
                labels = [path for path in labels if path not in val]
            if labels:
                found.setdefault(split, []).extend(_entries(labels, split, file))
        splits = found | splits  # a list above the folders may have their images, too
    return {split: splits[split] for split in SPLITS if split in splits}


def _listed(line: str, folder: Path) -> Path:
    """The XML file of a line: of the whole line, or of the name before VOC's 1 or -1, with or without quotes."""
    names = [name.strip('"') for name in (line, re.sub(r'\s+-?[01]$', '', line))]
    images = [name.rpartition('.')[0] for name in names if name.lower().endswith(IMAGE_SUFFIXES)]
    names += [part for name in images if ' ' not in name for part in (name, name.rpartition('/')[2])]
    paths = [folder / 'Annotations' / f'{name}.xml' for name in names]
    return next((path for path in paths if path.is_file()), paths[-1])


def _from_folders(root: Path) -> dict[str, list[LabeledImage]]:
    """XML files in folders `train`, `valid` or `val`, and `test`. Without these, all in two levels are train."""
    splits = {}
    folders = {entry.name.lower(): entry for entry in sorted(root.iterdir()) if entry.is_dir() and is_data(entry.name)}
    for split, names in SPLIT_NAMES.items():
        for folder in (folders[name] for name in names if name in folders):
            if labels := [path for path in list_files(folder) if path.suffix.lower() == '.xml']:
                splits[split] = _entries(labels, split)
    if not splits:
        paths = (path for place in (root, *folders.values()) for path in sorted(place.glob('*.xml')))
        if labels := [path for path in paths if is_data(path.name) and _VOC.search(path.read_bytes()[:1000])]:
            splits['train'] = _entries(labels, 'train')
    return splits


def _entries(labels: list[Path], split: str, file: Path | None = None) -> list[LabeledImage]:
    """The images of XML files, those that a list names in place of the ones of a folder.

    Images that are listed may have no XML file. Without an image, both are left out and reported.
    """
    names_in = cache(_names_in)
    images = {path: _find_image(path, names_in) for path in labels}
    missing = [path for path, image in images.items() if image is None]
    if with_xml := [str(path) for path in missing if path.is_file()]:
        reports('xml-without-image', split, items=with_xml)
        others = left_out(path for folder in {path.parent.parent for path in missing} for path in list_files(folder))
        if others:
            reports('unread-files', split, f'files of formats that are not read: {others}')
    if without := [path.stem for path in missing if not path.is_file()]:
        code = 'unlabeled-test' if split == 'test' else 'listed-image-missing'
        reports(code, split, f'images that {file} lists and that have neither file nor XML', without)
    return [LabeledImage(image, path if path.is_file() else None) for path, image in images.items() if image]


def _images_beside(entries: list[LabeledImage], used: set[Path]) -> list[str]:
    """The images in the folders of a split's images that no split uses."""
    others = {path for folder in {entry.image.parent for entry in entries} for path in folder.iterdir()} - used
    return sorted(path.name for path in others if path.suffix.lower() in IMAGE_SUFFIXES and is_data(path.name))


def _names_in(folder: Path) -> frozenset[str]:
    with suppress(OSError):  # there is no such folder
        return frozenset(os.listdir(folder))
    return frozenset()


def _find_image(labels: Path, names_in: Callable[[Path], frozenset[str]]) -> Path | None:
    """The image with the stem of an XML file, of several the one that it names, or else one of another stem.

    It is next to the file, one level higher, or in an image folder. `names_in` lists a folder.
    """
    places = [folder / name for folder in labels.parents[:2] for name in ('', *_IMAGE_FOLDERS)]
    if root := next((folder.parent for folder in labels.parents if folder.name == 'Annotations'), None):
        below = labels.parent.relative_to(root / 'Annotations')  # such as a folder per camera
        places += [root / name / below for name in _IMAGE_FOLDERS]
    suffixes = [*IMAGE_SUFFIXES, *map(str.upper, IMAGE_SUFFIXES)]
    named = (_read_xml(labels).findtext('filename') or '').strip() if labels.is_file() else ''
    stems = sorted((labels.stem + suffix for suffix in suffixes), key=lambda name: name != named)
    for place in places:
        listed = names_in(place)
        names = [name for name in (*stems, named) if name in listed or '/' in name]  # folders may be part of a name
        if found := next((place / name for name in names if (place / name).is_file()), None):
            return found
    return None


def _read_xml(path: Path | None) -> ElementTree.Element:
    try:
        content = re.sub(rb'\sxmlns="[^"]*"', b'', Path(path or '').read_bytes())  # it would be part of every name
        declared = _DECLARED.match(content)  # the parser itself knows no encoding of several bytes, such as gb2312
        return ElementTree.fromstring(content.decode(declared[1].decode()) if declared else content)
    except (OSError, ElementTree.ParseError, LookupError, ValueError) as error:
        raise ValueError(f'{path} cannot be read as XML: {error}; save it as UTF-8, or export it again') from error


def _class_name(node: ElementTree.Element) -> str:
    return (node.findtext('name') or '').strip()


def _number(node: ElementTree.Element, key: str) -> float:
    text = node.findtext(key)
    try:
        value = float(text or '')
    except ValueError:
        value = float('nan')
    if not abs(value) < 1e9:
        raise ValueError(f'{node.tag}.{key}={text!r} is not a number')
    return value


def _polygon(node: ElementTree.Element) -> list[float]:
    """The corners x1, y1, x2, y2, ... of an object's polygon; [] without one."""
    polygon = node.find('polygon')
    if polygon is None or polygon.find('x3') is None:
        return []
    return [_number(polygon, f'{axis}{i}') for i in range(1, len(polygon) // 2 + 1) for axis in 'xy']
