"""COCO content in one canonical form, whatever program wrote it. The originals of changed ids are kept for output.

- Ids are integers above 0, annotation ids are unique, category ids ascend and the categories of all splits have one
  order. Ids that are so already stay; others are counted from 1, and entries keep theirs as `original_id`.
- `area`, `iscrowd` and `bbox` are derived where they are missing, and image sizes are read from the files.
- Images of one file become one image. Repeated objects, pieces of polygons below 3 points, categories that only group
  others, and images too narrow to be resized are left out.

What can be misunderstood is left as it is, for `inspection.py` to name.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.messages import shorten

NARROWEST = 100  # long side over short side; the shortest side of the smallest training size is then 1 pixel
_MOST = 10**12  # largest coordinate, side or area; some dtypes hold no more
# Packed run lengths: digits of 5 bits, as characters from '0'; from 'P' on, another one follows. pycocotools reads
# beyond the end of other strings.
_PACKED = re.compile('([P-o]{0,6}[0-O])+')

Entry = dict[str, Any]
_NO_CROWDS = 'objects that the program marks as crowds (iscrowd=1), read as single ones'


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number of a size that coordinates have."""
    return isinstance(value, int | float) and abs(value) < _MOST


def is_size(value: Any) -> bool:
    """Returns whether a value can be the width or height of an image."""
    return is_number(value) and value >= 1 and value == int(value)


def is_box(value: Any) -> bool:
    """Returns whether a value is a list of four finite numbers."""
    return isinstance(value, list) and len(value) == 4 and all(map(is_number, value))


def original_id(entry: Mapping[str, Any]) -> Any:
    """Returns the id of an image, an annotation or a category in the file of the user."""
    return entry.get('original_id', entry.get('id'))


def id_text(value: Any) -> str:
    """Returns an id as text: some programs write 7, 7.0 and "7" for one image."""
    return str(int(value)) if type(value) is float and value.is_integer() else str(value)


def _name(category: Mapping[str, Any]) -> str:
    return str(category.get('name'))


def normalize(contents: Mapping[str, Entry], folders: Mapping[str, Path]) -> dict[str, Entry]:
    """Returns the contents of splits in canonical form, with what was changed in `tokennorm.notes`.

    Args:
        contents: Content of the COCO file of each split. A content that is canonical already is returned itself.
        folders: Folder of the images of each split.
    """
    groups = _grouping_names(contents)
    first = next(iter(contents.values()))
    order = list(dict.fromkeys(name for name in map(_name, first['categories']) if name not in groups))
    return {name: _normalize(content, folders[name], order, groups) for name, content in contents.items()}


def _grouping_names(contents: Mapping[str, Entry]) -> set[str]:
    """Names of categories without an annotation in any split that are the supercategory of another one."""
    used: set[str | None] = set()
    supers, every = set(), set()
    for content in contents.values():
        names = {id_text(one.get('id')): _name(one) for one in content['categories']}
        used |= {names.get(id_text(one.get('category_id'))) for one in content.get('annotations', ())}
        others = (one for one in content['categories'] if one.get('supercategory') != one.get('name'))
        supers |= {str(one.get('supercategory')) for one in others}
        every |= set(names.values())
    return (every & supers) - used if used & every else set()


def _without_namesakes(content: Entry, notes: list[str]) -> list[Entry]:
    """The categories but those without an annotation that group one of their own name, as Roboflow writes them."""
    entries = content['categories']
    is_own = [one.get('supercategory') == one.get('name') for one in entries]
    names = {_name(one) for one, own in zip(entries, is_own, strict=True) if own}
    namesakes = [one for one, own in zip(entries, is_own, strict=True) if not own and _name(one) in names]
    if namesakes:
        used = {id_text(one.get('category_id')) for one in content.get('annotations', ())}
        namesakes = [one for one in namesakes if id_text(one.get('id')) not in used]
        notes += [f'category that only groups others, left out: {_name(one)}' for one in namesakes]
    return [one for one in entries if one not in namesakes]


def _normalize(content: Entry, folder: Path, order: Sequence[str], groups: set[str]) -> Entry:
    notes: list[str] = []
    categories, category_ids = _categories(_without_namesakes(content, notes), order, groups, notes)
    images, image_ids = _images(content['images'], folder, notes)
    sizes = {id_text(one.get('id')): [one.get('height'), one.get('width')] for one in images}
    objects = content.get('annotations', [])
    if _marks_pieces_as_crowds(content):  # supervision and V7 Darwin, objects of several pieces
        pieces = sum(one.get('iscrowd') == 1 for one in objects)
        notes += [f'{_NO_CROWDS}: {pieces}'] * bool(pieces)
        objects = [{**one, 'iscrowd': 0} if one.get('iscrowd') == 1 else one for one in objects]
    annotations = _annotations(objects, image_ids, category_ids, sizes, notes)
    new = dict(categories=categories, images=images, annotations=annotations)
    same = all(
        len(new[key]) == len(content.get(key, ())) and all(a is b for a, b in zip(new[key], content[key], strict=True))
        for key in new
    )
    if same and not notes:
        return content
    facts = content.get('tokennorm', {})
    return {**content, **new, 'tokennorm': {**facts, 'notes': [*facts.get('notes', ()), *notes]}}


def _with_ids(entries: list[Entry], ascending: bool = False) -> list[Entry]:
    """Entries with ids that are integers above 0 and unique. Ambiguous ids, which are repeated, stay."""
    ids = [entry.get('id') for entry in entries]
    fine = all(type(one) is int and 0 < one < 2**53 for one in ids)
    if len(set(map(id_text, ids))) < len(ids) or (fine and not (ascending and ids != sorted(ids))):
        return entries
    return [{'original_id': entry.get('id'), **entry, 'id': i} for i, entry in enumerate(entries, 1)]


def _categories(
    entries: list[Entry], order: Sequence[str], groups: set[str], notes: list[str]
) -> tuple[list[Entry], dict[str, Any]]:
    """The categories in an order of names, and the new id of each id."""
    kept = [one for one in entries if _name(one) not in groups]
    if len(kept) < len(entries):
        dropped = [name for name in map(_name, entries) if name in groups]
        notes.append(f'categories that only group others, left out: {shorten(dropped, 5)}')
    by_name = {_name(one): one for one in kept}
    added = [name for name in order if name not in by_name]
    if len(by_name) == len(kept) and not (added and by_name.keys() - set(order)):  # the inspection names other lists
        places = dict(zip(added, range(-len(added), 0), strict=True))  # ids that are renumbered below
        known = [by_name[name] if name in by_name else dict(id=places[name], name=name) for name in order]
        kept = known + [one for one in kept if _name(one) not in order]
    new = _with_ids(kept, ascending=True)
    return new, {id_text(old.get('id')): one.get('id') for old, one in zip(kept, new, strict=True)}


def _images(entries: list[Entry], folder: Path, notes: list[str]) -> tuple[list[Entry], dict[str, Any]]:
    """The images with sizes, one for each file, and the new id of each id."""
    unknown = [
        i
        for i, one in enumerate(entries)
        if not (is_size(one.get('width')) and is_size(one.get('height'))) and isinstance(one.get('file_name'), str)
    ]
    sized, read = list(entries), 0
    names = [entries[i]['file_name'] for i in unknown]
    for i, (problem, (width, height), _) in zip(
        unknown, map_files(partial(open_image, folder), names, 'Sizes of images'), strict=True
    ):
        if not problem:
            sized[i], read = {**entries[i], 'width': width, 'height': height}, read + 1
    if read:
        notes.append(f'images without a size, which was read from the file: {read}')
    first: dict[Any, int] = {}
    written = [one.get('file_name') for one in sized]
    files = [os.path.normpath(name) if isinstance(name, str) else i for i, name in enumerate(written)]
    repeated = [i for i, file in enumerate(files) if first.setdefault(file, i) != i]
    sides = [(one.get('width'), one.get('height')) for one in sized]
    narrow = {i for i, two in enumerate(sides) if all(map(is_size, two)) and max(two) > NARROWEST * min(two)}
    for what, chosen in (
        ('files that are listed more than once, whose objects were merged', repeated),
        (f'images more than {NARROWEST} times as long as wide, which cannot be resized, left out', sorted(narrow)),
    ):
        if chosen:
            names = list(dict.fromkeys(str(files[i]) for i in chosen))
            notes.append(f'{what}: {len(names)} ({shorten(names, 5)})')
    dropped = narrow | set(repeated)
    kept = [one for i, one in enumerate(sized) if i not in dropped] if dropped else sized
    new = _with_ids(kept)
    ids = {id_text(old.get('id')): one.get('id') for old, one in zip(kept, new, strict=True)}
    for i in repeated:
        ids.setdefault(id_text(sized[i].get('id')), ids.get(id_text(sized[first[files[i]]].get('id'))))
    for i in narrow:
        ids.setdefault(id_text(sized[i].get('id')), None)  # its objects are left out, too
    return new, ids


def _marks_pieces_as_crowds(content: Entry) -> bool:
    of_supervision = [one.get('supercategory') == 'common-objects' for one in content['categories']]
    info = content.get('info')
    of_darwin = isinstance(info, dict) and info.get('description') == 'Exported from Darwin'
    return of_darwin or (all(of_supervision) and bool(of_supervision))


def _annotations(
    entries: list[Entry],
    image_ids: Mapping[str, Any],
    category_ids: Mapping[str, Any],
    sizes: Mapping[str, list[Any]],
    notes: list[str],
) -> list[Entry]:
    ids = [one.get('id') for one in entries]
    fine = all(type(one) is int and 0 < one < 2**53 for one in ids) and len(set(ids)) == len(ids)
    counts: Counter[str] = Counter()
    seen: dict[Any, Any] = {}
    kept = []
    for i, one in enumerate(entries, 1):
        change = {} if fine else {'original_id': one.get('id'), 'id': i}
        for key, table in (('image_id', image_ids), ('category_id', category_ids)):
            value = one.get(key)
            new = table.get(id_text(value), 0)  # not listed: an id that no entry has
            if new is not value and (new != value or type(new) is not type(value)):
                change[key] = new
        if change.get('image_id', 0) is None:
            continue
        change |= _derived(one, sizes.get(id_text(change.get('image_id', one.get('image_id')))), counts)
        one = {**one, **change} if change else one
        box = one.get('bbox')
        if is_box(box) and one.get('image_id') != 0:  # of an image that is listed
            key = str(one.get('image_id')), str(one.get('category_id')), *box, one.get('iscrowd')
            mask = seen.setdefault(key, one)
            if mask is not one and mask.get('segmentation') == one.get('segmentation'):
                counts['repeated objects, left out'] += 1
                continue
        kept.append(one)
    notes += [f'{what}: {count}' for what, count in counts.items()]
    return kept


def turned(box: Sequence[float], angle: float) -> tuple[list[float], list[float]]:
    """Returns the corners of a box turned by degrees around its center, and the upright box around them."""
    x, y, w, h = box
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    sides = [(-w / 2, -h / 2), (w / 2, -h / 2), (w / 2, h / 2), (-w / 2, h / 2)]
    corners = [(x + w / 2 + a * cos - b * sin, y + h / 2 + a * sin + b * cos) for a, b in sides]
    width, height = w * abs(cos) + h * abs(sin), w * abs(sin) + h * abs(cos)
    return [value for corner in corners for value in corner], [x + (w - width) / 2, y + (h - height) / 2, width, height]


def _derived(one: Entry, size: Any, counts: Counter[str]) -> Entry:
    """The keys of an annotation of an image of `size` (height, width) that follow from its others."""
    new: Entry = {}
    mask = one.get('segmentation')
    if mask is None and 'bbox' not in one and isinstance(one.get('points'), list):  # polygons of Segments.ai
        mask = new['segmentation'] = [one['points']]
    if isinstance(mask, list) and mask:
        pieces = [mask] if all(map(is_number, mask)) else mask
        pieces = [_flat(piece) for piece in pieces]
        good = [piece for piece in pieces if not _is_short(piece)]
        if len(good) < len(mask) or any(a is not b for a, b in zip(good, mask, strict=True)):
            if len(good) < len(pieces):
                counts['pieces of polygons with fewer than 3 points, left out'] += len(pieces) - len(good)
            mask = new['segmentation'] = good
    if one.get('iscrowd') not in (0, 1):
        new['iscrowd'] = int(str(one.get('iscrowd')).lower() in ('1', 'true'))
    box, area = one.get('bbox'), one.get('area')
    attributes = one.get('attributes')
    of_cvat = isinstance(attributes, dict) and 'occluded' in attributes
    if of_cvat and isinstance(mask, dict) and new.get('iscrowd', one.get('iscrowd')):
        new['iscrowd'] = 0  # CVAT marks each mask of its brush so; crowds, by its attribute is_crowd, are rare
        counts[_NO_CROWDS] += 1
    angle = attributes.get('rotation') if isinstance(attributes, dict) else None
    if is_number(angle) and angle and angle is not True and is_box(box) and _is_unturned(mask, box, size):
        corners, upright = turned(box, angle)
        new |= dict(bbox=upright, attributes=attributes | {'rotation': 0})
        if _box_and_area(mask, size):
            new['segmentation'] = [corners]
        counts['boxes with attributes.rotation, read as the upright boxes around them'] += 1
    needs_box = box in (None, []) or (is_box(box) and not any(box))
    needs_area = area is None or (is_number(area) and area <= 0)
    around = (box[2] + 2) * (box[3] + 2) if is_box(box) and min(box[2:]) >= 1 else 0  # programs round
    is_odd = around > 0 and is_number(area) and not around / 1000 <= area <= 2 * around  # 1, or that of the image
    if not (needs_box or needs_area or is_odd):
        return new
    measured = _box_and_area(mask, size)
    if needs_box and measured:
        box = new['bbox'] = measured[0]
        counts['boxes that were derived from the mask'] += 1
    if is_odd and not needs_area and not (measured and measured[1] / 2 <= area <= 2 * measured[1]):
        needs_area = True
        counts['areas far from those of their boxes, computed again'] += 1
    if needs_area and is_box(box):
        new['area'] = (measured and measured[1]) or max(box[2], 0) * max(box[3], 0)
    return new


def _is_unturned(mask: Any, box: Sequence[float], size: Any) -> bool:
    """Whether a box that has a rotation is the one before it: without a mask, or with its own corners as Encord's."""
    if not _box_and_area(mask, size):
        return True
    x, y, w, h = box
    corners = [x, y, x + w, y, x + w, y + h, x, y + h]
    return isinstance(mask, list) and list(map(len, mask)) == [8] and np.allclose(mask[0], corners)


def _flat(piece: Any) -> Any:
    """A polygon of [x, y] for each point as x, y, x, y, ...; another one itself."""
    nested = isinstance(piece, list) and piece and all(isinstance(point, list) for point in piece)
    return [value for point in piece for value in point] if nested else piece


def _is_short(piece: Any) -> bool:
    return isinstance(piece, list) and (len(piece) < 6 or len(piece) % 2 == 1)


def _box_and_area(mask: Any, size: Any) -> tuple[list[float], float] | None:
    """The box and the area of a mask of an image of `size` (height, width); None for a mask that cannot be used."""
    if isinstance(mask, list) and mask and all(isinstance(p, list) and all(map(is_number, p)) for p in mask):
        corners = [np.reshape(piece, (-1, 2)).astype(float) for piece in mask]
        low, high = np.concatenate(corners).min(0), np.concatenate(corners).max(0)
        areas = (abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2 for x, y in (one.T for one in corners))
        return [*low.tolist(), *(high - low).tolist()], sum(areas)
    if encoded := _encoded(mask, size):
        return run_lengths.toBbox(encoded).tolist(), float(run_lengths.area(encoded))
    return None


def _encoded(mask: Any, size: Any) -> Entry | None:
    """Run lengths that cover an image of `size` (height, width), packed; None for others."""
    if not (isinstance(mask, dict) and size and mask.get('size') == size and all(map(is_size, size))):
        return None
    if not covers(mask.get('counts'), size[0] * size[1]):
        return None
    return run_lengths.frPyObjects(mask, *size) if isinstance(mask['counts'], list) else mask


def covers(counts: Any, pixels: int) -> bool:
    """Returns whether run lengths, packed or not, cover a number of pixels. Packed ones may also cover fewer."""
    if isinstance(counts, list):
        return all(type(count) is int and count >= 0 for count in counts) and sum(counts) == pixels
    if not isinstance(counts, str) or not _PACKED.fullmatch(counts):
        return False
    try:
        run_lengths.decode(dict(size=[1, pixels], counts=counts))
    except ValueError:
        return False
    return True
