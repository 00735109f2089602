"""Pascal VOC folders: one XML file per image, with lists in `ImageSets/Main/`, in a folder per split, or unsplit."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tokennorm.datasets.coco.entries import Entry, as_coco
from tokennorm.datasets.image_files import is_data, is_image, list_files, read_lines
from tokennorm.datasets.splits import SPLIT_NAMES, SPLIT_WORDS, ReadSplit
from tokennorm.datasets.yolo import IMAGE_WITHOUT_LABEL, INVALID_LABEL, LABEL_WITHOUT_IMAGE, LISTED_IMAGE_MISSING
from tokennorm.findings import Rule

PIXELS_FROM_0 = Rule('pixels-from-0', 'note', 'pixels are counted from 0, as there are boxes that begin below 1',
    changes=True,
    why='Pascal VOC counts pixels from 1, many programs from 0. Allowed, they are read as counted from 1.',
    do='Allow this if pixels are counted from 1')  # fmt: skip

_VOC = re.compile(rb'<annotation[\s>]')  # XML of many images has <annotations>

Xmls = dict[str, list[Path]]  # of each split


def find_voc(root: Path) -> dict[str, ReadSplit]:
    """Reads the Pascal VOC dataset of a folder, with classes in alphabetical order as VOC's own.

    Without lists or folders of splits, all images are train.
    """
    listed = _from_image_sets(root)
    xmls = listed or _from_folders(root)
    by_stem: Mapping[str, list[Path]] = defaultdict(list)
    for path in filter(is_image, list_files(root)):
        if not path.parent.name.startswith('Segmentation'):  # masks, with the names of the images
            by_stem[path.stem].append(path)
    splits = {split: list(_read_images(root, split, paths, by_stem)) for split, paths in xmls.items()}
    objects = [one for images in splits.values() for _, some in images for one in some]
    at_zero = sum(any(0 <= value < 1 for value in one['bbox'][:2]) for one in objects)  # VOC's first pixel is 1
    text = f'{PIXELS_FROM_0.summary}: {at_zero}'
    first = 0 if at_zero and PIXELS_FROM_0.report(next(iter(splits)), text) else 1
    names, source = sorted({one['name'] for one in objects}), f'Pascal VOC labels of {root}'
    found = {}
    for split, images in splits.items():
        content = as_coco([(image, [_in_pixels(one, first, names) for one in some]) for image, some in images], names)
        found[split] = ReadSplit('Pascal VOC', content, root, source, has_list=bool(listed))
    return found


def _in_pixels(one: Entry, first: int, classes: Sequence[str]) -> Entry:
    """A COCO annotation. Corners that count from 1 include the last pixel, others do not."""
    left, top, right, bottom = one['bbox']
    box = [left - first, top - first, right - left + first, bottom - top + first]
    masks = [[round(value - first, 3) for value in polygon] for polygon in one.get('segmentation', ())]
    category = dict(category_id=classes.index(one['name']) + 1, bbox=[round(value, 3) for value in box])
    others = {key: value for key, value in one.items() if key in ('iscrowd', 'attributes')}
    return category | others | (dict(segmentation=masks) if masks else {})


def _read_images(
    root: Path, split: str, xmls: Sequence[Path], by_stem: Mapping[str, list[Path]]
) -> Iterator[tuple[Entry, list[Entry]]]:
    """The image and the objects of each XML file. Listed images without such a file are background."""
    for path in xmls:
        node = _read_xml(path) if path.is_file() else ElementTree.Element('annotation')
        name = (node.findtext('filename') or '').strip()
        # in the nearest folder, of several the one that the file names
        candidates = by_stem.get(path.stem) or by_stem.get(Path(name).stem) or []
        folders = {*path.parent.parts}
        image = max(candidates, key=lambda one: (len(folders & {*one.parent.parts}), one.name == name), default=None)
        if image is None:
            if path.is_file() or split != 'test':
                (LABEL_WITHOUT_IMAGE if path.is_file() else LISTED_IMAGE_MISSING).report(split, items=[path])
            continue
        if not path.is_file():
            IMAGE_WITHOUT_LABEL.report(split, items=[image])
        try:
            size = {key: int(_number(node, f'size/{key}', '0')) for key in ('width', 'height')}
        except ValueError as error:
            raise ValueError(f'{path}: {error}') from error
        size = size if all(size.values()) else {}  # some write 0; it is then read from the file
        yield dict(file_name=str(image.relative_to(root)), **size), list(_read_objects(node, path.name, split))


def _read_objects(node: ElementTree.Element, name: str, split: str) -> Iterator[Entry]:
    """The objects of an XML file, with `bbox` and `segmentation` as they are written.

    Objects marked `difficult` become crowds: as in VOC's evaluation, they are not missed. mmdet's detectors train on
    their place as background.
    """
    for node_of_one in node.findall('object'):
        is_crowd = (node_of_one.findtext('difficult') or '0').strip().lower() in ('1', 'true')
        one: Entry = dict(name=(node_of_one.findtext('name') or '').strip(), iscrowd=int(is_crowd))
        attributes = {each.findtext('name'): each.findtext('value') for each in node_of_one.iter('attribute')}
        rotation = attributes.get('rotation')
        try:
            if not one['name']:
                raise ValueError('an object has no name')
            if rotation and node_of_one.find('occluded') is not None:  # of CVAT, as in its COCO
                one['attributes'] = dict(occluded=False, rotation=float(rotation))
            if polygon := _polygon(node_of_one):
                one['segmentation'] = [polygon]
            yield one | dict(bbox=_corners(node_of_one))
        except ValueError as error:
            INVALID_LABEL.report(split, items=[f'{name}: {error}'])


def _corners(node: ElementTree.Element) -> list[float]:
    boxes = node.findall('bndbox')
    if len(boxes) != 1:
        raise ValueError(f'an object {node.findtext("name")!r} has {len(boxes)} bndbox, not 1')
    left, top, right, bottom = (_number(boxes[0], key) for key in ('xmin', 'ymin', 'xmax', 'ymax'))
    if right < left or bottom < top:
        raise ValueError(f'a bndbox ends before it begins: {left:g}, {top:g}, {right:g}, {bottom:g}')
    return [left, top, right, bottom]


def _polygon(node: ElementTree.Element) -> list[float]:
    """The corners x1, y1, x2, y2, ... of an object's polygon; [] without one."""
    polygon = node.find('polygon')
    if polygon is None or polygon.find('x3') is None:
        return []
    return [_number(polygon, f'{axis}{i}') for i in range(1, len(polygon) // 2 + 1) for axis in 'xy']


def _number(node: ElementTree.Element, key: str, default: str = 'nan') -> float:
    text = node.findtext(key) or default
    try:
        value = float(text)
    except ValueError:
        value = float('nan')
    if not abs(value) < 1e9:
        raise ValueError(f'{node.tag}.{key}={text!r} is not a number')
    return value


def _read_xml(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise ValueError(f'{path} cannot be read as XML: {error}; save it as UTF-8, or export it again') from error


def _from_image_sets(root: Path) -> Xmls:
    """The XML files of lists such as `ImageSets/Main/train.txt`, also of VOC2007 and VOC2012 together."""
    splits: Xmls = defaultdict(list)
    for sets in sorted(root.glob('**/ImageSets')):
        lists = sorted((sets / 'Main').glob('*.txt')) or sorted(sets.glob('*.txt'))
        by_name = {path.stem.lower(): read_lines(path) for path in lists if is_data(path.name)}
        if not by_name.get('train'):  # trainval holds val, too
            by_name['train'] = [line for line in by_name.get('trainval', ()) if line not in by_name.get('val', ())]
        for name, lines in by_name.items():
            xmls = [_listed(line, sets.parent) for line in lines]
            # others are lists of something else, such as segmentations
            if name in SPLIT_WORDS and any(path.is_file() for path in xmls):
                splits[SPLIT_WORDS[name]] += xmls
    return {split: splits[split] for split in SPLIT_NAMES if split in splits}


def _listed(line: str, folder: Path) -> Path:
    """The XML file of a line: of the whole line, or of the name before VOC's 1 or -1, with or without quotes."""
    names = [name.strip('"') for name in (line, re.sub(r'\s+-?[01]$', '', line))]
    names += [name.rpartition('.')[0] for name in names if is_image(name)]
    paths = [folder / 'Annotations' / f'{name}.xml' for name in names]
    return next((path for path in paths if path.is_file()), paths[-1])


def _from_folders(root: Path) -> Xmls:
    """XML files in folders such as `train` and `valid`. Without these, all in two levels are train."""
    folders = {path.name.lower(): path for path in sorted(root.iterdir()) if path.is_dir() and is_data(path.name)}
    splits: Xmls = defaultdict(list)
    for name in filter(SPLIT_WORDS.get, folders):
        splits[SPLIT_WORDS[name]] += [path for path in list_files(folders[name]) if path.suffix.lower() == '.xml']
    if not any(splits.values()):
        paths = [path for place in (root, *folders.values()) for path in sorted(place.glob('*.xml'))]
        splits['train'] = [path for path in paths if is_data(path.name) and _VOC.search(path.read_bytes()[:1000])]
    return {split: splits[split] for split in SPLIT_NAMES if splits.get(split)}
