"""Looks through the splits of a COCO-format folder for what breaks a training and what quietly spoils it."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from mmengine.utils import track_iter_progress

from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.rle import rle_problem
from tokennorm.datasets.image_files import any_size, open_image
from tokennorm.messages import shorten

_MOST = 10**12  # of a coordinate, a side or an area; what is larger is no such thing, and infinite in some dtype


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _MOST


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 1 and value == int(value)


def _is_id(value: Any) -> bool:
    return _is_whole_number(value) or isinstance(value, str)


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53  # evaluations hold it as float


def _is_flag(value: Any) -> bool:
    return isinstance(value, int | float) and value in (0, 1)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(_is_number, value))


_KEYS = dict(
    images=dict(id=_is_id, file_name=_is_name, width=_is_size, height=_is_size),
    categories=dict(id=_is_id, name=_is_name),
    annotations=dict(
        id=_is_whole_number, image_id=_is_id, category_id=_is_id, bbox=_is_box, area=_is_number, iscrowd=_is_flag
    ),
)


@dataclass
class Inspection:
    """What was found.

    Attributes:
        errors: What would stop a training or make its evaluation wrong, one line each.
        warnings: What it would run through, with data left out or of doubtful use.
        table: Names and counts, Markdown.
        most_objects: Objects of the image that has most.
        mask_errors: What would stop a training on the masks, or make its evaluation wrong; boxes do not mind.
    """

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    table: str = ''
    most_objects: int = 0
    mask_errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = {'ERROR': self.errors, 'ERROR for masks': self.mask_errors, 'warning': self.warnings}
        lines = [f'{kind}: {line}' for kind, lines in kinds.items() for line in lines]
        text = '\n'.join([self.table, *(lines or ['Nothing to complain of.'])])
        return text.encode('utf-8', 'backslashreplace').decode()  # names in JSON may hold what no terminal prints


def inspect_splits(splits: Mapping[str, CocoSplit], open_images: bool = True) -> Inspection:
    """Inspects annotations, image files and how the splits fit together.

    Every image file is opened, for its size and its end; only those that do not end as their format does are decoded.

    Args:
        splits: Splits by name; the others are compared with the first.
        open_images: Without it the image files are left alone.
    """
    found = Inspection()
    for split in splits.values():
        _inspect_entries(split, found)
    if not found.errors:  # entries are what they should be
        for split in splits.values():
            _inspect_objects(split, found)
        _compare_categories(splits, found)
        if open_images:
            for split in splits.values():
                _inspect_images(split, found)
            _find_shared_images(splits, found)
        found.table = _table(splits)
    return found


def inspect_annotations(split: CocoSplit) -> Inspection:
    """Inspects the annotations of one split, without looking at image files or other splits."""
    found = Inspection()
    _inspect_entries(split, found)
    if not found.errors:
        _inspect_objects(split, found)
    return found


def objects_by_class(split: CocoSplit) -> Counter[str]:
    """Objects of each class, in the order of the file's categories; crowds are not counted."""
    names = {category['id']: category['name'] for category in split.content['categories']}
    counts = Counter({name: 0 for name in names.values()})
    counts.update(
        names[a['category_id']]
        for a in split.content['annotations']
        if a['category_id'] in names and not a.get('iscrowd')
    )
    return counts


def _inspect_entries(split: CocoSplit, found: Inspection) -> None:
    """Keys, their types, and ids that are there once."""
    names = {image['id']: image.get('file_name') for image in split.content['images'] if _is_id(image.get('id'))}
    for kind, checks in _KEYS.items():
        entries = split.content[kind]
        for key, is_valid in checks.items():
            wrong = [
                f'{_label(entry, i, names)} ({key}={_brief(entry.get(key))})'
                for i, entry in enumerate(entries)
                if not is_valid(entry.get(key))
            ]
            if wrong and not (key == 'iscrowd' and split.name == 'train'):  # which only the evaluation reads
                found.errors.append(f'{split.name}: {kind} without a valid {key}: {_list(wrong)}')
        for key in ('id',) if kind != 'categories' else ('id', 'name'):
            counts = Counter(_brief(entry.get(key), most=None) for entry in entries)
            twice = [value for value, count in counts.items() if count > 1]
            if twice:
                found.errors.append(f'{split.name}: {kind} with the same {key}: {_list(twice)}')
    for kind, key in (('images', 'image_id'), ('categories', 'category_id')):
        types = {type(entry.get('id')) for entry in split.content[kind]}
        if len(types | {type(annotation.get(key)) for annotation in split.content['annotations']}) > 1:
            found.errors.append(f'{split.name}: the id of {kind} and the {key} of annotations are not of one type')
    if not split.content['categories'] or not split.content['images']:
        found.errors.append(f'{split.name}: {split.ann_file} has no images or no categories')


def _inspect_objects(split: CocoSplit, found: Inspection) -> None:
    """Boxes and masks; entries must have been found valid."""
    _inspect_boxes(split, found)
    _inspect_masks(split, found)


def _inspect_boxes(split: CocoSplit, found: Inspection) -> None:
    images = {image['id']: image for image in split.content['images']}
    categories = {category['id'] for category in split.content['categories']}
    fate = 'not trained on' if split.name == 'train' else 'which the evaluation counts as missed'
    problems = defaultdict(list)
    objects = Counter()
    for annotation in split.content['annotations']:
        label = f'annotation {annotation["id"]}'
        image = images.get(annotation['image_id'])
        x, y, w, h = annotation['bbox']
        if image is None:
            problems['annotations of an image that is not listed, ignored'].append(label)
            continue
        label += f' of {image["file_name"]}'
        if annotation['category_id'] not in categories:
            problems['annotations of a category that is not listed, ignored'].append(label)
        elif w < 1 or h < 1 or annotation['area'] <= 0:
            problems[f'boxes without area (a side below 1 pixel, or area=0), {fate}'].append(label)
        elif x >= image['width'] or y >= image['height'] or x + w <= 0 or y + h <= 0:
            problems[f'boxes outside their image, {fate}'].append(label)
        elif annotation.get('ignore'):
            problems[f'objects marked ignore, {fate}'].append(label)
        else:
            objects[image['id']] += not annotation.get('iscrowd')
            if min(x, y) < -1 or x + w > image['width'] + 1 or y + h > image['height'] + 1:
                problems['boxes partly outside their image'].append(label)
    found.warnings += [f'{split.name}: {what}: {_list(labels)}' for what, labels in problems.items()]
    beyond = len(problems['boxes partly outside their image'])
    annotations = split.content['annotations']
    if beyond > len(annotations) / 4 and all(_fits_as_corners(annotation, images) for annotation in annotations):
        found.errors.append(
            f'{split.name}: {beyond} boxes reach beyond their image and would fit as [x1, y1, x2, y2]: '
            'COCO has [x, y, width, height]'
        )
    if split.name != 'train' and any(annotation['id'] == 0 for annotation in annotations):
        found.errors.append(
            f'{split.name}: an annotation has the id 0, which the evaluation takes for none; count from 1'
        )
    found.most_objects = max(found.most_objects, *objects.values(), 0)
    if not +objects:
        found.errors.append(f'{split.name}: no image has an object to learn from or to evaluate on')
    unused = [name for name, count in objects_by_class(split).items() if not count]
    if unused:
        found.warnings.append(f'{split.name}: classes without an example: {_list(unused)}')


def _fits_as_corners(annotation: Mapping[str, Any], images: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether a box could be two corners inside its image."""
    x1, y1, x2, y2 = annotation['bbox']
    image = images.get(annotation['image_id'])
    return image is not None and x1 < x2 <= image['width'] + 1 and y1 < y2 <= image['height'] + 1


def _inspect_masks(split: CocoSplit, found: Inspection) -> None:
    """Segmentations, where there are any: polygons of three points or more, run lengths of the image's size."""
    images = {image['id']: image for image in split.content['images']}
    problems = defaultdict(list)
    for annotation in split.content['annotations']:
        image = images.get(annotation['image_id'])
        if image is not None:  # others are not read
            kind, detail = mask_problem(annotation.get('segmentation'), [image['height'], image['width']])
            if kind:
                label = f'annotation {annotation["id"]} of {image["file_name"]}'
                problems[kind].append(label + (f' ({detail})' if detail else ''))
    if split.name == 'train' and _SHORT in problems:
        found.warnings.append(f'{split.name}: {_SHORT}, not trained on: {_list(problems.pop(_SHORT))}')
    found.mask_errors += [f'{split.name}: {what}: {_list(labels)}' for what, labels in problems.items()]


_SHORT = 'segmentations that are neither polygons of 3 points or more nor run lengths'


def mask_problem(mask: Any, size: list[int]) -> tuple[str, str]:
    """What is wrong with the segmentation of an image of `size` (height, width), and a detail; '' where nothing is."""
    if not mask:
        return 'annotations without a segmentation', ''
    if isinstance(mask, list):
        if not all(isinstance(polygon, list) and all(map(_is_number, polygon)) for polygon in mask):
            return 'polygons with something else than numbers', ''
        if not all(len(polygon) >= 6 and len(polygon) % 2 == 0 for polygon in mask):
            return _SHORT, ''
        # pycocotools walks along every edge pixel by pixel, wherever it leads.
        far = [
            v
            for polygon in mask
            for axis, side in ((0, size[1]), (1, size[0]))
            for v in polygon[axis::2]
            if not -side <= v <= 2 * side
        ]
        return ('polygons far outside their image', f'{far[0]:g}') if far else ('', '')
    if not isinstance(mask, dict):
        return 'segmentations that are neither lists nor run lengths', ''
    if not isinstance(mask.get('counts'), list | str) or mask.get('size') is None:
        return _SHORT, ''
    problem = rle_problem(mask, size)
    return ('run-length masks that do not fit their image', problem) if problem else ('', '')


def _inspect_images(split: CocoSplit, found: Inspection) -> None:
    images = split.content['images']
    with ThreadPoolExecutor() as pool, any_size():
        opened = pool.map(partial(open_image, split.image_dir), [image['file_name'] for image in images])
        progress = track_iter_progress((opened, len(images))) if len(images) > 5000 else opened
        results = list(zip(images, progress, strict=True))
    problems, notes = defaultdict(list), defaultdict(list)
    for image, (problem, size, of_image) in results:
        label = f'{image["file_name"]} (id {image["id"]})'
        for note in of_image:
            notes[note].append(label)
        if problem:
            problems[problem].append(label)
        elif size != (image['width'], image['height']):
            listed = f'{image["width"]}x{image["height"]}'
            problems['size'].append(f'{label[:-1]}, {size[0]}x{size[1]}, in the json {listed})')
    differing = problems.pop('size', [])
    if differing:
        found.errors.append(
            f'{split.name}: image files of another size than in the json, as training reads them, turned as EXIF says; '
            f'their boxes lie elsewhere: {_list(differing)}'
        )
    found.errors += [f'{split.name}: image files {p} in {split.image_dir}: {_list(n)}' for p, n in problems.items()]
    found.warnings += [f'{split.name}: image files {note}: {_list(names)}' for note, names in notes.items()]


def _compare_categories(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """mmdet numbers classes by their position in each file, so names must come in one order in all splits."""
    first = next(iter(splits))
    train = splits[first].content['categories']
    names = [category['name'] for category in train]
    ids = {category['name']: category['id'] for category in train}
    for split in (split for name, split in splits.items() if name != first):
        theirs = [c['name'] for c in split.content['categories']]
        missing = [name for name in names if name not in theirs]
        extra = [name for name in theirs if name not in names]
        other_ids = [
            f'{c["name"]} ({c["id"]}, in {first} {ids[c["name"]]})'
            for c in split.content['categories']
            if ids.get(c['name'], c['id']) != c['id']
        ]
        if missing:
            found.errors.append(f'{split.name}: categories of {first} that are not listed: {_list(missing)}')
        elif [name for name in theirs if name in names] != names:
            found.errors.append(
                f'{split.name}: the categories come in another order than in {first}, which exchanges classes: '
                f'{_list(theirs)}; in {first} {_list(names)}'
            )
        if other_ids:
            found.warnings.append(f'{split.name}: categories with another id than in {first}: {_list(other_ids)}')
        if extra:
            counts = objects_by_class(split)
            found.warnings.append(
                f'{split.name}: categories that {first} has not, with their objects ignored: '
                f'{_list(f"{name} ({counts[name]} objects)" for name in extra)}'
            )


def _find_shared_images(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Files with the same content in two splits, whatever their names."""
    by_size = defaultdict(list)
    for split in splits.values():
        for image in split.content['images']:
            path = split.image_dir / image['file_name']
            if os.path.isfile(path):
                by_size[path.stat().st_size].append((split.name, path))
    names = defaultdict(lambda: defaultdict(list))
    for files in by_size.values():
        if len({split for split, _ in files}) > 1:
            for split, path in files:
                names[hashlib.sha256(path.read_bytes()).digest()][split].append(path.name)
    for first, second in combinations(splits, 2):
        shared = [
            ' = '.join(dict.fromkeys([by_split[first][0], by_split[second][0]]))
            for by_split in names.values()
            if first in by_split and second in by_split
        ]
        if shared:
            found.warnings.append(f'images in both {first} and {second}: {_list(shared)}')


def _table(splits: Mapping[str, CocoSplit]) -> str:
    rows = ['| split | images | without objects | objects | crowds | most in an image |', '|---|---|---|---|---|---|']
    for split in splits.values():
        annotations = split.content['annotations']
        objects = Counter(a['image_id'] for a in annotations if not a.get('iscrowd'))
        empty = sum(image['id'] not in objects for image in split.content['images'])
        crowds = sum(bool(a.get('iscrowd')) for a in annotations)
        cells = [
            split.name,
            len(split.content['images']),
            empty,
            objects.total(),
            crowds,
            max(objects.values(), default=0),
        ]
        rows.append('| ' + ' | '.join(map(str, cells)) + ' |')
    counts = {name: objects_by_class(split) for name, split in splits.items()}
    rows += ['', f'| class | {" | ".join(splits)} |', '|---|' + '---|' * len(splits)]
    rows += [
        f'| {name} | {" | ".join(str(c[name]) for c in counts.values())} |' for name in next(iter(counts.values()))
    ]
    return '\n'.join(rows)


def _label(entry: Mapping[str, Any], index: int, image_names: Mapping[Any, Any]) -> str:
    """How an entry is called: by its file name, its name, or its id and the file of its image."""
    for key in ('file_name', 'name'):
        if _is_name(entry.get(key)):
            return entry[key][:200]
    image_id = entry.get('image_id')
    name = image_names.get(image_id) if _is_id(image_id) else None
    return f'id {_brief(entry["id"], quote=False) if "id" in entry else f"missing, entry {index}"}' + (
        f' of {name}' if _is_name(name) else ''
    )


def _brief(value: Any, most: int | None = 40, quote: bool = True) -> str:
    try:
        return (repr(value) if quote or not isinstance(value, str) else value)[:most]
    except RecursionError:
        return 'nested without end'


def _list(items: Iterable[str], most: int = 5) -> str:
    """The count where there are many, the first few, and how many more."""
    items = list(items)
    count = f'{len(items)}, ' if len(items) > 1 else ''
    return count + shorten(items, most)
