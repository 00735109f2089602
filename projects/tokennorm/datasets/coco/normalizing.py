"""COCO content in one canonical form, whatever program wrote it. The originals of changed ids are kept for output.

- Ids are integers above 0, annotation ids are unique, category ids ascend and the categories of all splits have one
  order. Ids that are so already stay; others are counted from 1, and entries keep theirs as `original_id`.
- `area`, `iscrowd` and `bbox` are derived where they are missing, and image sizes are read from the files.
- By rules that can be allowed: images of one file become one image if their objects differ. Repeated objects, pieces of
  polygons below 3 points, and images too narrow to be resized are left out. Areas far from the boxes are derived.

What can be misunderstood is left as it is, for the rules to name.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.entries import Content, Entry, id_text, is_box, is_number, is_size, name_of
from tokennorm.datasets.coco.masks import box_and_area, is_short
from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.datasets.tally import Tally
from tokennorm.findings import reports

NARROWEST = 100  # long side over short side; the shortest side of the smallest training size is then 1 pixel


def normalize(contents: Mapping[str, Content], folders: Mapping[str, Path]) -> dict[str, Content]:
    """Returns the contents of splits in canonical form, and reports what was changed.

    Args:
        contents: Content of the COCO file of each split. A content that is canonical already is returned itself.
        folders: Folder of the images of each split.
    """
    first = next(iter(contents.values()))
    order = list(dict.fromkeys(map(name_of, first['categories'])))
    return {name: _normalize(name, content, folders[name], order) for name, content in contents.items()}


def _normalize(split: str, content: Content, folder: Path, order: Sequence[str]) -> Content:
    objects = content.get('annotations', [])
    categories, category_ids = _categories(content['categories'], order)
    images, image_ids = _images(split, content['images'], objects, folder)
    sizes = {id_text(one.get('id')): [one.get('height'), one.get('width')] for one in images}
    annotations = _annotations(split, objects, image_ids, category_ids, sizes)
    new = dict(categories=categories, images=images, annotations=annotations)
    same = all(
        len(new[key]) == len(content.get(key, ())) and all(a is b for a, b in zip(new[key], content[key], strict=True))
        for key in new
    )
    return content if same else {**content, **new}


def _with_ids(entries: list[Entry], ascending: bool = False) -> list[Entry]:
    """Entries with ids that are integers above 0 and unique. Ambiguous ids, which are repeated, stay."""
    ids = [entry.get('id') for entry in entries]
    fine = all(type(one) is int and 0 < one < 2**53 for one in ids)
    if len(set(map(id_text, ids))) < len(ids) or (fine and not (ascending and ids != sorted(ids))):
        return entries
    return [{'original_id': entry.get('id'), **entry, 'id': i} for i, entry in enumerate(entries, 1)]


def _categories(entries: list[Entry], order: Sequence[str]) -> tuple[list[Entry], dict[str, Any]]:
    """The categories in an order of names, and the new id of each id."""
    by_name = {name_of(one): one for one in entries}
    added = [name for name in order if name not in by_name]
    if len(by_name) == len(entries) and not (added and by_name.keys() - set(order)):  # a rule names other lists
        places = dict(zip(added, range(-len(added), 0), strict=True))  # ids that are renumbered below
        known = [by_name[name] if name in by_name else dict(id=places[name], name=name) for name in order]
        entries = known + [one for one in entries if name_of(one) not in order]
    new = _with_ids(entries, ascending=True)
    return new, {id_text(old.get('id')): one.get('id') for old, one in zip(entries, new, strict=True)}


def _images(
    split: str, entries: list[Entry], objects: Sequence[Entry], folder: Path
) -> tuple[list[Entry], dict[str, Any]]:
    """The images with sizes, and the new id of each id: one of two merged images, None for one that is left out."""
    sized = _with_sizes(split, entries, folder)
    written = [one.get('file_name') for one in sized]
    files = [os.path.normpath(name) if isinstance(name, str) else i for i, name in enumerate(written)]
    merged = _repeated(split, sized, files, objects)
    sides = [(one.get('width'), one.get('height')) for one in sized]
    narrow = {i for i, two in enumerate(sides) if all(map(is_size, two)) and max(two) > NARROWEST * min(two)}
    if narrow and not reports('narrow-image', split, items=[str(files[i]) for i in sorted(narrow)]):
        narrow = set()
    dropped = narrow | merged.keys()
    kept = [one for i, one in enumerate(sized) if i not in dropped] if dropped else sized
    new = _with_ids(kept)
    ids = {id_text(old.get('id')): one.get('id') for old, one in zip(kept, new, strict=True)}
    for i, first in merged.items():
        ids.setdefault(id_text(sized[i].get('id')), ids.get(id_text(sized[first].get('id'))))
    for i in narrow:
        ids.setdefault(id_text(sized[i].get('id')), None)  # its objects are left out, too
    return new, ids


def _with_sizes(split: str, entries: list[Entry], folder: Path) -> list[Entry]:
    """The images with the sizes of their files where they have none."""
    unknown = [
        i
        for i, one in enumerate(entries)
        if not (is_size(one.get('width')) and is_size(one.get('height'))) and isinstance(one.get('file_name'), str)
    ]
    sized, tally = list(entries), Tally(split)
    names = [entries[i]['file_name'] for i in unknown]
    opened = map_files(partial(open_image, folder), names, 'Sizes of images')
    for i, (problem, (width, height), _) in zip(unknown, opened, strict=True):
        if not problem:
            sized[i] = {**entries[i], 'width': width, 'height': height}
            tally('size-from-file', entries[i]['file_name'])
    tally.report()
    return sized


def _repeated(split: str, images: Sequence[Entry], files: Sequence[Any], objects: Sequence[Entry]) -> dict[int, int]:
    """The first image of the same file for those that are to be merged with it, since their objects differ."""
    places = defaultdict(list)
    for i, file in enumerate(files):
        places[file].append(i)
    several = {file: some for file, some in places.items() if len(some) > 1}
    ids = {id_text(images[i].get('id')) for some in several.values() for i in some}
    of_image: dict[str, list[str]] = defaultdict(list)
    for one in objects if several else ():
        if (image := id_text(one.get('image_id'))) in ids:
            of_image[image].append(repr([one.get(key) for key in ('category_id', 'bbox', 'segmentation', 'iscrowd')]))
    differ = {
        file: some
        for file, some in several.items()
        if len({tuple(sorted(of_image[id_text(images[i].get('id'))])) for i in some}) > 1
    }
    if same := several.keys() - differ.keys():
        reports('oversampled-image', split, items=[str(file) for file in several if file in same])
    if differ and reports('repeated-image', split, items=map(str, differ)):
        return {i: some[0] for some in differ.values() for i in some[1:]}
    return {}


def _annotations(
    split: str,
    entries: list[Entry],
    image_ids: Mapping[str, Any],
    category_ids: Mapping[str, Any],
    sizes: Mapping[str, list[Any]],
) -> list[Entry]:
    ids = [one.get('id') for one in entries]
    fine = all(type(one) is int and 0 < one < 2**53 for one in ids) and len(set(ids)) == len(ids)
    tally, seen, kept = Tally(split), dict[Any, Any](), []
    for i, one in enumerate(entries, 1):
        change = {} if fine else {'original_id': one.get('id'), 'id': i}
        for key, table in (('image_id', image_ids), ('category_id', category_ids)):
            value = one.get(key)
            new = table.get(id_text(value), 0)  # not listed: an id that no entry has
            if new is not value and (new != value or type(new) is not type(value)):
                change[key] = new
        if change.get('image_id', 0) is None:
            continue
        label = f'annotation {one.get("id", i)}'
        change |= _derived(one, sizes.get(id_text(change.get('image_id', one.get('image_id')))), tally, label)
        one = {**one, **change} if change else one
        box = one.get('bbox')
        if is_box(box) and one.get('image_id') != 0:  # of an image that is listed
            key = str(one.get('image_id')), str(one.get('category_id')), *box, one.get('iscrowd')
            first = seen.setdefault(key, one)
            is_repeated = first is not one and first.get('segmentation') == one.get('segmentation')
            if is_repeated and tally('repeated-object', label):
                continue
        kept.append(one)
    tally.report()
    return kept


def _derived(one: Entry, size: Any, tally: Tally, label: str) -> Entry:
    """The keys of an annotation of an image of `size` (height, width) that follow from its others."""
    new: Entry = {}
    mask = one.get('segmentation')
    if isinstance(mask, list) and mask:
        pieces = [_flat(piece) for piece in ([mask] if all(map(is_number, mask)) else mask)]
        good = [piece for piece in pieces if not is_short(piece)]
        if len(good) < len(pieces) and not tally('short-polygon', label):
            good = pieces
        if len(good) < len(mask) or any(a is not b for a, b in zip(good, mask, strict=True)):
            mask = new['segmentation'] = good
    if one.get('iscrowd') not in (0, 1):
        new['iscrowd'] = int(str(one.get('iscrowd')).lower() in ('1', 'true'))
    box, area = one.get('bbox'), one.get('area')
    needs_box = box in (None, []) or (is_box(box) and not any(box))
    needs_area = area is None or (is_number(area) and area <= 0)
    around = (box[2] + 2) * (box[3] + 2) if is_box(box) and min(box[2:]) >= 1 else 0  # programs round
    is_odd = around > 0 and is_number(area) and not around / 1000 <= area <= 2 * around  # 1, or that of the image
    if not (needs_box or needs_area or is_odd):
        return new
    measured = box_and_area(mask, size)
    if needs_box and measured:
        box = new['bbox'] = measured[0]
        tally('bbox-from-mask', label)
    if is_odd and not needs_area and not (measured and measured[1] / 2 <= area <= 2 * measured[1]):
        needs_area = tally('odd-area', label)
    if needs_area and is_box(box):
        new['area'] = (measured and measured[1]) or max(box[2], 0) * max(box[3], 0)
    return new


def _flat(piece: Any) -> Any:
    """A polygon of [x, y] for each point as x, y, x, y, ...; another one itself."""
    nested = isinstance(piece, list) and piece and all(isinstance(point, list) for point in piece)
    return [value for point in piece for value in point] if nested else piece
