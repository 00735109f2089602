"""COCO content in one canonical form, whatever program wrote it. The originals of changed ids are kept for output.

- Ids are integers above 0, annotation ids are unique, category ids ascend and the categories of all splits have one
  order. Lists that lack classes of each other are united: some programs write only the classes that occur. Ids that
  are so already stay; others are counted from 1, and entries keep theirs as `original_id`.
- `area`, `iscrowd` and `bbox` are derived where they are missing, and image sizes are read from the files.
- By rules that can be allowed, repeated objects and pieces of polygons below 3 points are left out.

What can be misunderstood is left as it is, for the rules to name.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.entries import Content, Entry, id_text, is_box, is_number, is_size, name_of
from tokennorm.datasets.coco.masks import box_and_area, is_short
from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.findings import Rule

OTHER_CLASSES = Rule('other-classes', 'error', 'the classes are not those of the first split',
    why='A name is spelled in two ways, or a list has classes without objects, so that it is meant to be whole. Lists '
        'of the classes that occur are united. Allowed, all are.',
    do='Use one list of names for all splits')  # fmt: skip
REPEATED_OBJECT = Rule('repeated-object', 'warning', 'repeated objects, left out', changes=True,
    why='The copy of an object in the same place is always missed, so that AP cannot reach 100.',
    do='Remove the copies')  # fmt: skip
SHORT_POLYGON = Rule('short-polygon', 'warning', 'objects with pieces of polygons of fewer than 3 points, left out',
    changes=True,
    why='A slip of the mouse makes them. mmdet trains on no object with such a piece, not even on its box.',
    do='Remove the pieces')  # fmt: skip


def normalize(contents: Mapping[str, Content], folders: Mapping[str, Path]) -> dict[str, Content]:
    """Returns the contents of splits in canonical form, and reports what was changed.

    Args:
        contents: Content of the COCO file of each split. A content that is canonical already is returned itself.
        folders: Folder of the images of each split.
    """
    order = _order_of_classes(contents)
    return {name: _normalize(name, content, folders[name], order) for name, content in contents.items()}


def _order_of_classes(contents: Mapping[str, Content]) -> list[str]:
    """The names of the first split's classes, then those of other splits that lack some of these."""
    first, *others = [[name_of(one) for one in content['categories']] for content in contents.values()]
    order = dict.fromkeys(first)
    for split, names in zip(list(contents)[1:], others, strict=True):
        missing, extra = [name for name in first if name not in names], [name for name in names if name not in first]
        if missing and extra:
            order |= dict.fromkeys(extra)
            spelled = set(map(_letters, missing)) & set(map(_letters, extra))
            if spelled or not all(map(_lists_what_occurs, (contents[split], next(iter(contents.values()))))):
                items = [f'without {name!a}' for name in missing] + [f'with {name!a}' for name in extra]
                OTHER_CLASSES.report(split, items=items)
    return list(order)


def _letters(name: str) -> str:
    return re.sub(r'\W', '', name.casefold())


def _lists_what_occurs(content: Content) -> bool:
    used = {id_text(one.get('category_id')) for one in content['annotations']}
    return all(id_text(one.get('id')) in used for one in content['categories'])


def _normalize(split: str, content: Content, folder: Path, order: Sequence[str]) -> Content:
    categories, category_ids = _with_ids(_ordered(content['categories'], order), ascending=True)
    images, image_ids = _with_ids(_with_sizes(content['images'], folder))
    sizes = {one.get('id'): [one.get('height'), one.get('width')] for one in images}
    annotations = _annotations(split, content['annotations'], image_ids, category_ids, sizes)
    new = dict(categories=categories, images=images, annotations=annotations)
    same = all(
        len(new[key]) == len(content[key]) and all(a is b for a, b in zip(new[key], content[key], strict=True))
        for key in new
    )
    return content if same else {**content, **new}


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53


def _with_ids(entries: list[Entry], ascending: bool = False) -> tuple[list[Entry], dict[str, Any]]:
    """Entries with ids that are integers above 0 and unique, and the new id of each. Ids that are repeated stay."""
    ids = [entry.get('id') for entry in entries]
    fine = all(map(_is_id, ids)) and not (ascending and ids != sorted(ids))
    if not fine and len(set(map(id_text, ids))) == len(ids):
        entries = [{'original_id': entry.get('id'), **entry, 'id': i} for i, entry in enumerate(entries, 1)]
    return entries, {id_text(old): entry.get('id') for old, entry in zip(ids, entries, strict=True)}


def _ordered(categories: list[Entry], order: Sequence[str]) -> list[Entry]:
    """The categories in an order of names, with those that are missing, and others last."""
    by_name = {name_of(one): one for one in categories}
    missing = [name for name in order if name not in by_name]
    others = [one for one in categories if name_of(one) not in order]
    if len(by_name) < len(categories) or (missing and others):  # a rule names these
        return categories
    by_name |= {name: dict(id=-i, name=name) for i, name in enumerate(missing, 1)}
    return [by_name[name] for name in order] + others


def _with_sizes(images: list[Entry], folder: Path) -> list[Entry]:
    """The images with the sizes of their files where they have none."""
    places = [i for i, one in enumerate(images) if not (is_size(one.get('width')) and is_size(one.get('height')))]
    paths = [folder / str(images[i].get('file_name')) for i in places]
    sized = list(images)
    for i, file in zip(places, map_files(open_image, paths, 'Sizes of images'), strict=True):
        if not file.problem:
            sized[i] = {**images[i], 'width': file.size[0], 'height': file.size[1]}
    return sized


def _annotations(
    split: str,
    entries: list[Entry],
    image_ids: Mapping[str, Any],
    category_ids: Mapping[str, Any],
    sizes: Mapping[Any, list[Any]],
) -> list[Entry]:
    ids = [one.get('id') for one in entries]
    fine = all(map(_is_id, ids)) and len(set(ids)) == len(ids)
    seen, kept = dict[Any, Any](), []
    for i, one in enumerate(entries, 1):
        change = {} if fine else {'original_id': one.get('id'), 'id': i}
        for key, table in (('image_id', image_ids), ('category_id', category_ids)):
            value = one.get(key)
            new = table.get(id_text(value), 0)  # not listed: an id that no entry has
            if new != value or type(new) is not type(value):
                change[key] = new
        label = f'annotation {one.get("id", i)}'
        image_id = change.get('image_id', one.get('image_id'))
        change |= _derived(one, sizes.get(image_id), split, label)
        one = {**one, **change} if change else one
        if is_box(one.get('bbox')) and image_id != 0:  # of an image that is listed
            key = image_id, str(one.get('category_id')), *one['bbox'], one.get('iscrowd')
            first = seen.setdefault(key, one)
            is_repeated = first is not one and first.get('segmentation') == one.get('segmentation')
            if is_repeated and REPEATED_OBJECT.report(split, items=[label]):
                continue
        kept.append(one)
    return kept


def _derived(one: Entry, size: Any, split: str, label: str) -> Entry:
    """The keys of an annotation of an image of `size` (height, width) that follow from its others."""
    new: Entry = {}
    mask, box, area = one.get('segmentation'), one.get('bbox'), one.get('area')
    if isinstance(mask, list) and any(map(is_short, mask)) and SHORT_POLYGON.report(split, items=[label]):
        mask = new['segmentation'] = [piece for piece in mask if not is_short(piece)]
    if one.get('iscrowd') not in (0, 1):
        new['iscrowd'] = int(str(one.get('iscrowd')).lower() in ('1', 'true'))
    needs_box = not box or (isinstance(box, list) and not any(box) and is_box(box))
    needs_area = area is None or (is_number(area) and area <= 0)
    measured = box_and_area(mask, size) if size and (needs_box or needs_area) else None
    if needs_box and measured:
        box = new['bbox'] = measured[0]
    if needs_area and is_box(box):
        new['area'] = (measured and measured[1]) or max(box[2], 0) * max(box[3], 0)
    return new
