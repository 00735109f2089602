"""Compares the categories of the splits, and counts their objects."""

from collections import Counter
from collections.abc import Mapping

from tokennorm.datasets.coco.describe import list_items
from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.found import Inspection


def objects_by_class(split: CocoSplit) -> Counter[str]:
    """The number of objects of each class, in the order of the file's categories; crowds are not counted."""
    names = {category['id']: category['name'] for category in split.content['categories']}
    counts = Counter({name: 0 for name in names.values()})
    counts.update(
        names[a['category_id']]
        for a in split.content['annotations']
        if a['category_id'] in names and not a.get('iscrowd')
    )
    return counts


def compare_categories(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Adds differences from the first split. mmdet numbers classes by their position in each file."""
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
            found.errors.append(f'{split.name}: categories of {first} that are not listed: {list_items(missing)}')
        elif [name for name in theirs if name in names] != names:
            found.errors.append(
                f'{split.name}: the categories come in another order than in {first}, which exchanges classes: '
                f'{list_items(theirs)}; in {first} {list_items(names)}'
            )
        if other_ids:
            found.warnings.append(f'{split.name}: categories with another id than in {first}: {list_items(other_ids)}')
        if extra:
            counts = objects_by_class(split)
            found.warnings.append(
                f'{split.name}: categories that {first} does not have, with their objects ignored: '
                f'{list_items(f"{name} ({counts[name]} objects)" for name in extra)}'
            )
