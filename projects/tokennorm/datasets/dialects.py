"""What single labeling programs write in their own way into COCO content. Each program's part is a function.

Roboflow's first category, id 0, groups all others. CVAT stores boxes before their rotation, and masks of its brush as
crowds; supervision stores objects of several pieces as crowds.
"""

import math
from collections.abc import Sequence

from tokennorm.datasets.coco.entries import Content, Entry, id_text, is_box, is_number, name_of
from tokennorm.findings import Rule

CATEGORY_GROUP = Rule('category-group', 'warning', 'categories that only group others, left out', changes=True,
    why='Roboflow writes the name of the project as category 0, which no object has.',
    do='Allow this, if it is a class')  # fmt: skip
ROTATED_BOX = Rule('rotated-box', 'warning', 'boxes with a rotation, read as the upright boxes around them',
    changes=True, why='CVAT stores the box before its rotation.',
    do='Allow this, if rotation is not that of the box')  # fmt: skip
CROWD_AS_OBJECT = Rule('crowd-as-object', 'warning',
    'objects that the program marks as crowds (iscrowd=1), read as single ones', changes=True,
    why="Masks of CVAT's brush and objects of several pieces of supervision are written so, and not learned.",
    do='Allow this, if they are crowds')  # fmt: skip


def without_dialect(split: str, content: Content) -> Content:
    """Returns content of a split with its objects and classes as COCO has them."""
    categories, entries = content['categories'], content['annotations']
    if _has_group(categories, entries) and CATEGORY_GROUP.report(split, items=[name_of(categories[0])]):
        content = {**content, 'categories': categories[1:]}
    of_supervision = all(one.get('supercategory') == 'common-objects' for one in categories)
    changes = [
        _turned(one, split) | _single(one, of_supervision, split) if one.get('attributes') or one.get('iscrowd') else {}
        for one in entries
    ]
    if any(changes):
        changed = [{**one, **new} if new else one for one, new in zip(entries, changes, strict=True)]
        content = {**content, 'annotations': changed}
    return content


def _has_group(categories: Sequence[Entry], entries: Sequence[Entry]) -> bool:
    """Whether the first category is Roboflow's group, which has no objects."""
    first, *others = categories or [{}]
    is_group = id_text(first.get('id')) == '0' and first.get('supercategory') == 'none'
    of_group = any(one.get('supercategory') == first.get('name') for one in others)
    return is_group and of_group and all(id_text(one.get('category_id')) != '0' for one in entries)


def _is_of_cvat(one: Entry) -> bool:
    return isinstance(attributes := one.get('attributes'), dict) and 'occluded' in attributes


def _turned(one: Entry, split: str) -> Entry:
    """The upright box around one that CVAT has rotated; that of a mask is around it already."""
    if not _is_of_cvat(one) or one.get('segmentation'):
        return {}
    angle, box = one['attributes'].get('rotation'), one.get('bbox')
    is_turned = is_number(angle) and angle and angle is not True and is_box(box)
    if not is_turned or not ROTATED_BOX.report(split, items=[f'annotation {one.get("id")}']):
        return {}
    x, y, w, h = box
    cos, sin = abs(math.cos(math.radians(angle))), abs(math.sin(math.radians(angle)))
    width, height = w * cos + h * sin, w * sin + h * cos
    upright = [x + (w - width) / 2, y + (h - height) / 2, width, height]
    return dict(bbox=upright, attributes=one['attributes'] | {'rotation': 0}, area=None)


def _single(one: Entry, of_supervision: bool, split: str) -> Entry:
    """A single object in place of a crowd of supervision or of CVAT's brush."""
    is_brush = _is_of_cvat(one) and isinstance(one.get('segmentation'), dict)
    is_crowd = str(one.get('iscrowd')).lower() in ('1', 'true') and (of_supervision or is_brush)
    is_single = is_crowd and CROWD_AS_OBJECT.report(split, items=[f'annotation {one.get("id")}'])
    return dict(iscrowd=0) if is_single else {}
