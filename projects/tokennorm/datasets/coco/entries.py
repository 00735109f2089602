"""Entries of COCO files, and their values: ids, numbers, sizes and boxes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MOST = 10**12  # largest coordinate, side or area; some dtypes hold no more

Entry = dict[str, Any]
Content = dict[str, Any]  # of a COCO file


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number of a size that coordinates have."""
    return isinstance(value, int | float) and abs(value) < _MOST


def is_size(value: Any) -> bool:
    """Returns whether a value can be the width or height of an image."""
    return is_number(value) and value >= 1 and value == int(value)


def is_box(value: Any) -> bool:
    """Returns whether a value is a list of four finite numbers, in a way that is fast for millions."""
    is_plain = isinstance(value, list) and len(value) == 4 and {*map(type, value)} <= {int, float}
    return is_plain and sum(map(abs, value)) < _MOST


def original_id(entry: Mapping[str, Any]) -> Any:
    """Returns the id of an image, an annotation or a category in the file of the user."""
    return entry.get('original_id', entry.get('id'))


def id_text(value: Any) -> str:
    """Returns an id as text: some programs write 7, 7.0 and "7" for one image."""
    return str(int(value)) if type(value) is float and value.is_integer() else str(value)


def name_of(category: Mapping[str, Any]) -> str:
    """Returns the name of a category as text."""
    return str(category.get('name'))


def as_coco(images: Iterable[tuple[Entry, Iterable[Entry]]], names: Sequence[str]) -> Content:
    """Returns images with their objects as COCO content: ids count from 1, and so does `category_id` of the objects."""
    content: Content = dict(images=[], annotations=[], categories=[])
    for image_id, (image, objects) in enumerate(images, 1):
        content['images'].append(dict(id=image_id) | image)
        for one in objects:
            content['annotations'].append(dict(id=len(content['annotations']) + 1, image_id=image_id) | one)
    content['categories'] = [dict(id=i, name=name) for i, name in enumerate(names, 1)]
    return content
