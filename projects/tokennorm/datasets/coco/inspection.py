"""Inspects the splits of a dataset in COCO format for problems that stop training, or spoil it silently."""

from collections import Counter
from collections.abc import Mapping

from tokennorm.datasets.coco.annotations import inspect_boxes, inspect_entries, inspect_masks
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.images import find_shared_images, inspect_images
from tokennorm.datasets.coco.problems import Inspection, list_items


def inspect_splits(splits: Mapping[str, CocoSplit], open_images: bool = True) -> Inspection:
    """Inspects annotations, image files and how the splits fit together.

    Every image file is opened to read its size and its end. Only files that do not end as their format does are
    decoded.
    """
    found = inspect_annotations(*splits.values())
    if found.entries_are_valid:
        _compare_categories(splits, found)
        if open_images:
            for split in splits.values():
                inspect_images(split, found)
            find_shared_images(splits, found)
        found.table = _table(splits)
    return found


def inspect_annotations(*splits: CocoSplit) -> Inspection:
    """Inspects the annotations of splits one by one, without their image files."""
    found = Inspection()
    for split in splits:
        inspect_entries(split, found)
    found.entries_are_valid = not found.errors
    for split in splits if found.entries_are_valid else ():
        inspect_boxes(split, found)
        inspect_masks(split, found)
    return found


def _compare_categories(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Adds differences from the first split. mmdet numbers classes by their position in each file."""
    first, *others = splits.values()
    ids = {category['name']: category['id'] for category in first.content['categories']}
    names = list(ids)
    for split in others:
        theirs = {category['name']: category['id'] for category in split.content['categories']}
        missing = [name for name in names if name not in theirs]
        if missing:
            found.errors.append(f'{split.name}: categories of {first.name} that are not listed: {list_items(missing)}')
        elif [name for name in theirs if name in ids] != names:
            found.errors.append(
                f'{split.name}: the categories come in another order than in {first.name}, which exchanges classes: '
                f'{list_items(theirs)}; in {first.name} {list_items(names)}'
            )
        other_ids = [
            f'{name} ({id}, in {first.name} {ids[name]})' for name, id in theirs.items() if ids.get(name, id) != id
        ]
        if other_ids:
            found.warnings.append(
                f'{split.name}: categories with another id than in {first.name}: {list_items(other_ids)}'
            )
        counts = split.objects_by_class()
        extra = [f'{name} ({counts[name]} objects)' for name in theirs if name not in ids]
        if extra:
            found.warnings.append(
                f'{split.name}: categories that {first.name} does not have, with their objects ignored: '
                f'{list_items(extra)}'
            )


def _table(splits: Mapping[str, CocoSplit]) -> str:
    """Counts per split and per class, Markdown."""
    rows = ['| split | images | without objects | objects | crowds | most in an image |', '|---|---|---|---|---|---|']
    for split in splits.values():
        annotations = split.content['annotations']
        objects = Counter(a['image_id'] for a in annotations if not a.get('iscrowd'))
        empty = sum(image['id'] not in objects for image in split.content['images'])
        crowds = sum(bool(a.get('iscrowd')) for a in annotations)
        cells = [split.name, len(split.content['images']), empty, objects.total(), crowds]
        rows.append('| ' + ' | '.join(map(str, [*cells, max(objects.values(), default=0)])) + ' |')
    counts = [split.objects_by_class() for split in splits.values()]
    rows += ['', f'| class | {" | ".join(splits)} |', '|---|' + '---|' * len(splits)]
    rows += [f'| {name} | {" | ".join(str(count[name]) for count in counts)} |' for name in counts[0]]
    return '\n'.join(rows)
