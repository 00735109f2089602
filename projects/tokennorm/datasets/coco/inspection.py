"""Judges the splits of a dataset in COCO form by the rules about entries, annotations, image files and classes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokennorm.datasets.coco.columns import Columns
from tokennorm.datasets.coco.entries import id_text, is_box, is_number, is_size, original_id
from tokennorm.datasets.coco.image_rules import begin_to_open, find_equal_files, judge_images
from tokennorm.datasets.coco.rules import OF_SPLIT, OF_SPLITS, misread_masks
from tokennorm.datasets.splits import CocoSplit
from tokennorm.findings import Findings, current, reports

_MOST_CLASSES = 100  # in a table; of more only the 20 with most objects in the first split


@dataclass(frozen=True)
class Inspection:
    """Counts of a dataset. What is wrong with it was reported."""

    table: str = ''  # names and counts, Markdown
    most_objects: int = 0  # number of objects in the image that has most

    def lines(self, findings: Findings, masks: bool = True) -> list[str]:
        """Returns the table and the findings of the command, with or without those about masks only."""
        return ['', *([self.table, ''] if self.table else []), findings.text(masks) or 'No problems found.', '']


def inspect_splits(splits: Mapping[str, CocoSplit], open_images: bool = True) -> Inspection:
    """Judges annotations, image files and how the splits fit together; only the entries if these have errors.

    If the readers have reported errors, nothing is judged: the splits are not whole.
    Every image file is opened to read its size and its end. Only files that do not end as their format does are
    decoded.
    """
    if any(one.rule.about == 'data' for one in current().of('error')):
        return Inspection()
    faults = [(split, *fault) for split in splits.values() for fault in faults_of_entries(split.content)]
    for split, code, text, items in faults:
        reports(code, split.name, text, items)
    if faults:
        return Inspection()
    opened = [begin_to_open(split) for split in splits.values()] if open_images else []
    columns = [split.columns for split in splits.values()]
    for data in columns:
        for rule_of_split in OF_SPLIT:
            rule_of_split(data)
    for rule_of_splits in OF_SPLITS:
        rule_of_splits(columns)
    for split, results in zip(splits.values(), opened, strict=False):
        judge_images(split, results)
    if open_images:
        find_equal_files(splits)
    return Inspection(_table(columns), max(int(data.objects.max()) for data in columns))


def all_have_masks(splits: Mapping[str, CocoSplit]) -> bool:
    """Returns whether there are objects, and each has a segmentation that training and evaluation can use."""
    if any(True for split in splits.values() for _ in faults_of_entries(split.content)):
        return False
    columns = [split.columns for split in splits.values()]
    usable = all((data.mask == '').all() and not misread_masks(data) for data in columns)
    return usable and any((~data.crowd).any() for data in columns)


_CHECKS = (
    ('images', 'file_name', lambda value: isinstance(value, str) and bool(value)),
    ('images', 'width', is_size),
    ('images', 'height', is_size),
    ('categories', 'name', lambda value: isinstance(value, str) and bool(value)),
    ('annotations', 'bbox', is_box),
    ('annotations', 'bbox_mode', lambda value: value in (None, 1)),  # of detectron2; 1 is COCO's
    ('annotations', 'area', is_number),
)
_UNIQUE = (
    ('images', 'id', 'duplicate-image-id'),
    ('categories', 'id', 'duplicate-category-id'),
    ('categories', 'name', 'duplicate-category-name'),
)


def faults_of_entries(content: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yields code, text and items for keys that are missing or of a wrong type, and for ids and names that are not
    unique.
    """
    for kind, key, is_valid in _CHECKS:
        wrong = [one for one in content[kind] if not is_valid(one.get(key))]
        if wrong:
            items = [f'{_label(one)} ({key}={one.get(key)!r:.40})' for one in wrong]
            yield 'invalid-entry', f'{kind} without a valid {key}', items
    for kind, key, code in _UNIQUE:
        text = id_text if key == 'id' else repr
        counts = Counter(text(entry.get(key)) for entry in content[kind])
        if repeated := [value for value, count in counts.items() if count > 1]:
            yield code, '', repeated
    for kind in ('images', 'categories'):
        if not content[kind]:
            yield 'no-objects', f'it has no {kind}', []


def _label(entry: Mapping[str, Any]) -> str:
    return f'{entry.get("file_name") or entry.get("name") or f"id {original_id(entry)}"!s:.200}'


def _table(splits: Sequence[Columns]) -> str:
    """Counts per split and per class, Markdown."""
    rows = ['| split | images | without objects | objects | crowds | most in an image |', '|---|---|---|---|---|---|']
    for data in splits:
        objects = np.bincount(data.image[~data.crowd & (data.image >= 0)], minlength=len(data.images))
        counts = len(data.images), (objects == 0).sum(), (~data.crowd).sum(), data.crowd.sum(), objects.max()
        rows.append('| ' + ' | '.join(map(str, (data.name, *counts))) + ' |')
    of_class = [data.objects_by_class for data in splits]
    rows += ['', f'| class | {" | ".join(data.name for data in splits)} |', '|---|' + '---|' * len(splits)]
    names = list(of_class[0])
    shown = names if len(names) <= _MOST_CLASSES else [name for name, _ in of_class[0].most_common(20)]
    rows += [f'| {name} | {" | ".join(str(counts[name]) for counts in of_class)} |' for name in shown]
    if others := set(names) - set(shown):
        sums = (str(sum(counts[name] for name in others)) for counts in of_class)
        rows.append(f'| {len(others)} other classes | {" | ".join(sums)} |')
    return '\n'.join(rows)
