"""Rules about the annotations of a split: each is an expression on its columns, and a row in `findings.data_rules`."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from tokennorm.datasets.coco.columns import Columns
from tokennorm.datasets.coco.masks import box_and_area, misreading
from tokennorm.findings import RULES, reports
from tokennorm.messages import did_you_mean

OF_SPLIT: list[Callable[[Columns], None]] = []
OF_SPLITS: list[Callable[[Sequence[Columns]], None]] = []
_SOME = 10  # boxes that show a shift
_LOOKED_AT = 200  # masks


def of_split(rule: Callable[[Columns], None]) -> Callable[[Columns], None]:
    """Adds a rule about each split."""
    OF_SPLIT.append(rule)
    return rule


def of_splits(rule: Callable[[Sequence[Columns]], None]) -> Callable[[Sequence[Columns]], None]:
    """Adds a rule about all splits together; the classes are those of the first."""
    OF_SPLITS.append(rule)
    return rule


# ---- boxes ----


@of_split
def orphans(data: Columns) -> None:
    data.report('orphan-image-id', data.image < 0)
    data.report('orphan-category-id', (data.image >= 0) & (data.category < 0))


@of_split
def boxes_that_are_not_used(data: Columns) -> None:
    data.report('degenerate-bbox', data.degenerate)
    data.report('bbox-outside-image', data.outside)
    data.report('ignored-object', data.ignored)


@of_split
def boxes_beyond_the_border(data: Columns) -> None:
    """One finding about them: what they may be instead, or that they are cut."""
    if not data.beyond.any():
        return
    if _fit_as_corners(data):
        data.report('bbox-as-corners', data.beyond)
    elif place := _place_of_shifted_boxes(data):
        certain = data.beyond.sum() >= _SOME and data.is_many(data.beyond) and not (data.mask == '').any()
        code = 'bbox-as-center' if certain else 'bbox-out-of-bounds'
        data.report(code, data.beyond, f'{RULES[code].summary}; all would be inside if x and y are their {place}')
    else:
        data.report('bbox-out-of-bounds', data.beyond)


def _fit_as_corners(data: Columns) -> bool:
    """Returns whether boxes of COCO JSON fit as x1, y1, x2, y2, which no box before the border and no mask denies."""
    corners, ends, listed = data.boxes[:, :2], data.boxes[:, 2:], data.image >= 0
    fit = ((corners >= 0) & (corners < ends) & (ends <= data.sizes + 1)).all(1) | ~listed
    return data.format == 'COCO' and data.is_many(data.beyond) and bool(fit.all()) and not _masks_are_xywh(data)


def _masks_are_xywh(data: Columns) -> bool:
    """Returns whether the masks of most boxes end where they do as x, y, width, height, and not as corners."""
    votes = []
    for i in np.flatnonzero(data.used & (data.mask == ''))[:_LOOKED_AT]:
        size = [int(side) for side in data.sizes[i, ::-1]]
        if measured := box_and_area(data.annotations[i]['segmentation'], size):
            (left, top, width, height), (x, y, w, h) = measured[0], data.boxes[i]
            right, bottom = left + width, top + height
            votes.append(abs(right - x - w) + abs(bottom - y - h) < abs(right - w) + abs(bottom - h))
    return sum(votes) > len(votes) / 2


def _place_of_shifted_boxes(data: Columns) -> str:
    """Returns what x and y must be for all boxes to be inside, if some are far beyond the border; else ''."""
    listed = data.image >= 0
    corners, sides = data.boxes[listed, :2], np.maximum(data.boxes[listed, 2:], 1)
    ends = data.sizes[listed]
    if data.format not in ('COCO', 'YOLO') or not (np.maximum(-corners, corners + sides - ends) > sides / 4).any():
        return ''
    for place, share in (('top left corners', 0.5), ('centers', -0.5)):
        moved = corners + share * sides
        if (moved >= -1).all() and (moved + sides <= ends + 1).all():
            return place
    return ''


@of_split
def crowds(data: Columns) -> None:
    """COCO has 1% with masks, and VOC 20% difficult objects. Some programs mark each mask of several parts."""
    masks = sum(isinstance(data.annotations[i].get('segmentation'), dict) for i in np.flatnonzero(data.crowd))
    if data.objects.any() and (data.is_many(data.crowd) or 20 * masks > len(data.annotations)):
        data.report('many-crowds', data.crowd)


@of_split
def no_objects(data: Columns) -> None:
    if not data.objects.any():
        causes = {'degenerate-bbox': data.degenerate, 'bbox-outside-image': data.outside}
        causes |= {'ignored-object': data.ignored, 'many-crowds': data.used & data.crowd}
        causes |= {'orphan-image-id': data.image < 0, 'orphan-category-id': (data.image >= 0) & (data.category < 0)}
        counts = Counter({code: int(chosen.sum()) for code, chosen in causes.items() if chosen.any()})
        cause = ''.join(f': {RULES[code].summary}: {count}' for code, count in counts.most_common(1))
        reports('no-objects', data.name, f'{RULES["no-objects"].summary}{cause}')


# ---- masks ----


@of_split
def unusable_masks(data: Columns) -> None:
    for code in ('no-mask', 'invalid-mask', 'mask-size', 'mask-outside-image', 'short-mask'):
        chosen = data.mask == code
        if code == 'no-mask' and chosen.all() and chosen.any():
            reports(code, data.name, 'no annotation has a segmentation')
        else:
            data.report(code, chosen)


@of_split
def masks_outside_their_box(data: Columns) -> None:
    found = misread_masks(data)
    code = 'mask-misread' if found else 'mask-outside-bbox'
    data.report(code, data.mask_outside, f'{RULES[code].summary} {found}'.strip())


def misread_masks(data: Columns) -> str:
    """Returns as what most masks that are outside their boxes would be inside, if these are many; else ''."""
    if not data.is_many(data.mask_outside):
        return ''
    looked_at = [data.annotations[i] for i in np.flatnonzero(data.mask_outside)[:_LOOKED_AT]]
    counts = Counter(misreading(one['segmentation'], one['bbox']) for one in looked_at)
    reading, count = counts.most_common(1)[0]
    return reading if count > 0.9 * len(looked_at) else ''


# ---- classes ----


@of_split
def classes_without_objects(data: Columns) -> None:
    if unused := [name for name, count in data.objects_by_class.items() if not count]:
        reports('zero-instance-category', data.name, items=unused)


@of_split
def classes_that_are_not_annotated_everywhere(data: Columns) -> None:
    if data.name != 'train' and any('neg_category_ids' in image for image in data.images):
        reports('federated-labels', data.name)


@of_splits
def other_classes(splits: Sequence[Columns]) -> None:
    first, *others = splits
    for other in others:
        names, theirs = list(first.objects_by_class), list(other.objects_by_class)
        missing, extra = [one for one in names if one not in theirs], [one for one in theirs if one not in names]
        if missing:
            shown = ascii if set(map(folded, missing)) & set(map(folded, extra)) else str  # they may look alike
            items = [f'without {shown(name)}' for name in missing] + [f'with {shown(name)}' for name in extra]
            reports('other-classes', other.name, f'the classes are not those of {first.name}', items)
        elif extra:
            items = [f'{name} ({other.objects_by_class[name]} objects)' for name in extra]
            reports('extra-classes', other.name, items=items)


@of_splits
def unlearned_classes(splits: Sequence[Columns]) -> None:
    first, *others = splits
    learned = [name for name, count in first.objects_by_class.items() if count]
    words = [name for name in learned if not re.search(r'\d', name)]
    for other in others if first.name == 'train' else ():
        new = [name for name in first.objects_by_class if name not in learned and other.objects_by_class[name]]
        if new:
            reports('unlearned-classes', other.name, items=[f'{name}{did_you_mean(name, words)}' for name in new])


@of_splits
def similar_classes(splits: Sequence[Columns]) -> None:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in splits[0].objects_by_class:
        alike[folded(name)].append(ascii(name))
    if same := [' and '.join(group) for group in alike.values() if len(group) > 1]:
        reports('similar-classes', splits[0].name, items=same)


def folded(name: str) -> str:
    """Returns a name without case, repeated spaces, characters of no width, and forms that Unicode calls compatible."""
    visible = (one for one in unicodedata.normalize('NFKC', name) if unicodedata.category(one) != 'Cf')
    return ' '.join(''.join(visible).casefold().split())
