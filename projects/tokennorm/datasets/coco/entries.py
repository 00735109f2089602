"""Checks the keys of an annotation file's entries, their types, and that ids are unique."""

from collections import Counter
from typing import Any

from tokennorm.datasets.coco.describe import brief, entry_label, list_items
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.found import Inspection

_MOST = 10**12  # largest coordinate, side or area; some dtypes hold no more


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number of a size that coordinates have."""
    return isinstance(value, int | float) and abs(value) < _MOST


def _is_size(value: Any) -> bool:
    return is_number(value) and value >= 1 and value == int(value)


def _is_id(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53  # evaluations hold it as float


def _is_flag(value: Any) -> bool:
    return isinstance(value, int | float) and value in (0, 1)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(is_number, value))


_KEYS = dict(
    images=dict(id=_is_id, file_name=_is_name, width=_is_size, height=_is_size),
    categories=dict(id=_is_id, name=_is_name),
    annotations=dict(
        id=_is_integer, image_id=_is_id, category_id=_is_id, bbox=_is_box, area=is_number, iscrowd=_is_flag
    ),
)


def inspect_entries(split: CocoSplit, found: Inspection) -> None:
    """Adds errors for keys that are missing or of a wrong type, and for ids that are not unique."""
    names = {image['id']: image.get('file_name') for image in split.content['images'] if _is_id(image.get('id'))}
    for kind, checks in _KEYS.items():
        entries = split.content[kind]
        for key, is_valid in checks.items():
            wrong = [
                f'{entry_label(entry, i, names)} ({key}={brief(entry.get(key))})'
                for i, entry in enumerate(entries)
                if not is_valid(entry.get(key))
            ]
            if wrong and not (key == 'iscrowd' and split.name == 'train'):  # only the evaluation reads iscrowd
                found.errors.append(f'{split.name}: {kind} without a valid {key}: {list_items(wrong)}')
        for key in ('id',) if kind != 'categories' else ('id', 'name'):
            twice = _repeated([entry.get(key) for entry in entries])
            if twice:
                found.errors.append(f'{split.name}: {kind} with the same {key}: {list_items(twice)}')
    for kind, key in (('images', 'image_id'), ('categories', 'category_id')):
        types = {type(entry.get('id')) for entry in split.content[kind]}
        if len(types | {type(annotation.get(key)) for annotation in split.content['annotations']}) > 1:
            found.errors.append(f'{split.name}: the id of {kind} and the {key} of annotations are not of one type')
    if not split.content['categories'] or not split.content['images']:
        found.errors.append(f'{split.name}: {split.ann_file} has no images or no categories')


def _repeated(values: list[Any]) -> list[str]:
    """Values that are there more than once, in words."""
    if all(type(value) is int for value in values) and len(set(values)) == len(values):  # the usual case, fast
        return []
    counts = Counter(brief(value, most=None) for value in values)
    return [value for value, count in counts.items() if count > 1]
