"""Inspects the splits of a dataset in COCO format for problems that stop training, or spoil it silently."""

from collections import Counter
from collections.abc import Mapping

from tokennorm.datasets.coco.boxes import inspect_boxes
from tokennorm.datasets.coco.categories import compare_categories, objects_by_class
from tokennorm.datasets.coco.entries import inspect_entries
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.found import Inspection
from tokennorm.datasets.coco.images import find_shared_images, inspect_images
from tokennorm.datasets.coco.masks import inspect_masks

__all__ = ['Inspection', 'inspect_annotations', 'inspect_splits', 'objects_by_class']


def inspect_splits(splits: Mapping[str, CocoSplit], open_images: bool = True) -> Inspection:
    """Inspects annotations, image files and how the splits fit together.

    Every image file is opened to read its size and its end. Only files that do not end as their format does are
    decoded.
    """
    found = Inspection()
    for split in splits.values():
        inspect_entries(split, found)
    if not found.errors:  # the other checks need valid entries
        for split in splits.values():
            inspect_boxes(split, found)
            inspect_masks(split, found)
        compare_categories(splits, found)
        if open_images:
            for split in splits.values():
                inspect_images(split, found)
            find_shared_images(splits, found)
        found.table = _table(splits)
    return found


def inspect_annotations(split: CocoSplit) -> Inspection:
    """Inspects the annotations of one split, without its image files and other splits."""
    found = Inspection()
    inspect_entries(split, found)
    if not found.errors:
        inspect_boxes(split, found)
        inspect_masks(split, found)
    return found


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
    counts = {name: objects_by_class(split) for name, split in splits.items()}
    rows += ['', f'| class | {" | ".join(splits)} |', '|---|' + '---|' * len(splits)]
    rows += [
        f'| {name} | {" | ".join(str(c[name]) for c in counts.values())} |' for name in next(iter(counts.values()))
    ]
    return '\n'.join(rows)
