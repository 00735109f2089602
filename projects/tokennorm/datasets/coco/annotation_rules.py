"""Rules about the annotations of a split: each is an expression on its columns, below its texts."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tokennorm.base.messages import counted, did_you_mean
from tokennorm.datasets.coco.columns import Columns
from tokennorm.findings import JUDGEMENTS, Rule, rule

NARROWEST = 100  # long side over short side; the shortest side of the smallest training size is then 1 pixel

NO_OBJECTS = Rule('no-objects', 'error', 'no image has an object to learn from or to evaluate on', can_allow=False,
    why='Training learns nothing, and AP is not defined. Crowds do not count.',
    do='Compare the file with the images; boxes of COCO are in pixels, not fractions')  # fmt: skip


def judge(splits: Sequence[Columns]) -> None:
    """Applies all rules about annotations and classes; the classes are those of the first split."""
    first, *others = splits
    for data in splits:
        for found, find_items in JUDGEMENTS['split']:
            found.report_items(data.name, find_items(data))
        if not data.objects.any():
            NO_OBJECTS.report(data.name)
        for found, choose in JUDGEMENTS['annotations'] if len(data.annotations) else ():
            found.report_items(data.name, map(data.label, np.flatnonzero(choose(data))))
    for other in others:
        for found, compare in JUDGEMENTS['classes']:
            found.report_items(other.name, compare(first, other))
    for found, find_items in JUDGEMENTS['first split']:
        found.report_items(first.name, find_items(first))


# ---- which of the annotations (N,) a rule is about ----


@rule('orphan-image-id', 'warning', 'annotations of an image that is not listed, ignored', on='annotations',
      why='They are neither learned nor evaluated.', do='Add the images, or remove the annotations')  # fmt: skip
def orphan_image_id(data: Columns) -> np.ndarray:
    return data.image < 0


@rule('orphan-category-id', 'warning', 'annotations of a category that is not listed, ignored', on='annotations',
      why='They are neither learned nor evaluated.', do='Add the categories, or remove the annotations')  # fmt: skip
def orphan_category_id(data: Columns) -> np.ndarray:
    return (data.image >= 0) & (data.category < 0)


@rule('degenerate-bbox', 'warning', 'boxes without area (a side below 1 pixel, or area=0)', on='annotations',
      why='They are not trained on, and the evaluation counts those of val and test as missed.',
      do='Remove them, or draw them again')  # fmt: skip
def degenerate_bbox(data: Columns) -> np.ndarray:
    return data.degenerate


@rule('bbox-outside-image', 'warning', 'boxes outside their image', on='annotations',
      why='They are not trained on, and the evaluation counts those of val and test as missed.',
      do='Remove them; if there are many, the boxes may be of images of another size')  # fmt: skip
def bbox_outside_image(data: Columns) -> np.ndarray:
    return data.outside


@rule('bbox-as-corners', 'error', 'boxes reach beyond their image, and all would fit as [x1, y1, x2, y2]',
      on='annotations',
      why='COCO has [x, y, width, height]. Read so, corners give boxes that are too large, and training is spoiled.',
      do='Convert the boxes to [x, y, width, height]')  # fmt: skip
def bbox_as_corners(data: Columns) -> np.ndarray:
    return data.beyond & boxes_fit_as_corners(data)


@rule('bbox-out-of-bounds', 'warning', 'boxes partly outside their image', on='annotations',
      why='Training cuts them at the border. Labels of whole objects that the border cuts are so on purpose.',
      do='Nothing, if objects are labeled in full; else cut them at the border')  # fmt: skip
def bbox_out_of_bounds(data: Columns) -> np.ndarray:
    return data.beyond & (not boxes_fit_as_corners(data))


def boxes_fit_as_corners(data: Columns) -> bool:
    """Returns whether boxes of COCO JSON fit as x1, y1, x2, y2, which no box before the border and no mask denies."""
    fit = ((data.corners >= 0) & (data.corners < data.sides) & (data.sides <= data.sizes + 1)).all(1)
    if data.format != 'COCO' or not is_many(data.beyond) or not fit[data.image >= 0].all():
        return False
    # the masks of most boxes end where they do as x, y, width, height
    masked, ends = data.used & (data.mask == ''), data.mask_corners[:, 2:]
    denied = abs(ends - data.ends).sum(1) < abs(ends - data.sides).sum(1)
    return not masked.any() or denied[masked].mean() <= 0.5


def is_many(chosen: np.ndarray) -> bool:
    """Returns whether so many annotations are chosen that it is a problem of the whole file: a quarter."""
    return chosen.mean() > 1 / 4


@rule('many-crowds', 'warning', 'crowds (iscrowd=1, difficult in Pascal VOC), neither learned nor missed',
      on='annotations',
      why='A crowd is a region of many objects. COCO has 1% of them; some programs mark single objects so.',
      do='Set iscrowd to 0 for single objects')  # fmt: skip
def many_crowds(data: Columns) -> np.ndarray:
    """COCO has 1% with masks, and VOC 20% difficult objects. Some programs mark each mask of several parts."""
    masks = np.array([isinstance(one.get('segmentation'), dict) for one in data.annotations], bool)
    return data.crowd & (is_many(data.crowd) | ((data.crowd & masks).mean() > 1 / 20)) & data.objects.any()


@rule('no-mask', 'error', 'annotations without a segmentation', on='annotations', about='masks',
      why='A model that learns masks needs one for each object.',
      do='Label the masks, or train a model for boxes, such as RetinaNet')  # fmt: skip
def no_mask(data: Columns) -> np.ndarray:
    return data.mask == 'no-mask'


@rule('invalid-mask', 'error', 'segmentations that cannot be drawn', on='annotations', about='masks',
      why='They must be polygons of 3 points or more, in pixels and not far outside of the image, or run lengths of '
          'its size.',
      do='Export them again, or remove them')  # fmt: skip
def invalid_mask(data: Columns) -> np.ndarray:
    return data.mask == 'invalid-mask'


@rule('mask-outside-bbox', 'warning', 'masks that reach far beyond their box', on='annotations',
      why='Labels with the mask of a whole object and the box of its visible part are so on purpose. Others are of '
          'another object, in fractions of the image, with y before x, or run lengths by rows.',
      do='Compare the drawings of `tokennorm check`')  # fmt: skip
def mask_outside_bbox(data: Columns) -> np.ndarray:
    """A quarter of a side is left for boxes that are not exact."""
    near, corners = 0.25 * data.sides + 2, data.mask_corners
    beyond = (corners[:, :2] < data.corners - near) | (corners[:, 2:] > data.ends + near)
    return data.used & beyond.any(1)


# ---- which images and classes of a split a rule is about ----


@rule('narrow-image', 'error', 'images more than 100 times as long as wide', on='split',
      why='Resized, they would have no pixel in one direction.', do='Cut them into tiles, or remove them')  # fmt: skip
def narrow_image(data: Columns) -> list[str]:
    sizes = [(image['file_name'], image['width'], image['height']) for image in data.images]
    return [name for name, *size in sizes if max(size) > NARROWEST * min(size)]


@rule('repeated-image', 'error', 'files that are listed more than once with different objects', on='split',
      why='Each entry teaches that the objects of the others are background.',
      do='Give each image one entry')  # fmt: skip
def repeated_image(data: Columns) -> list[str]:
    return listed_again(data, with_same_objects=False)


@rule('oversampled-image', 'note', 'files that are listed more than once, and count as often', on='split',
      why='Training sees them more often than others.',
      do='List each once, unless they are to be seen more often')  # fmt: skip
def oversampled_image(data: Columns) -> list[str]:
    return listed_again(data, with_same_objects=True)


def listed_again(data: Columns, with_same_objects: bool) -> list[str]:
    """The files that are listed more than once, all with the same objects or not."""
    objects = defaultdict(list)
    places = defaultdict(list)
    for i, image in enumerate(data.images):
        places[os.path.abspath(data.folder / image['file_name'])].append(i)
    again = {name: some for name, some in places.items() if len(some) > 1}
    for i in np.flatnonzero(np.isin(data.image, [i for some in again.values() for i in some])):
        one = data.annotations[i]
        objects[data.image[i]].append(repr([one['category_id'], one['bbox'], one.get('segmentation'), one['iscrowd']]))
    return [
        min((data.images[i]['file_name'] for i in some), key=len)
        for some in again.values()
        if (len({tuple(sorted(objects[i])) for i in some}) == 1) == with_same_objects
    ]


@rule('zero-instance-category', 'warning', 'classes without an example', on='split',
      why='A class without objects in train is not learned; without objects in val it has no AP.',
      do='Remove the class, or label some objects of it')  # fmt: skip
def zero_instance_category(data: Columns) -> list[str]:
    return [name for name, count in data.objects_by_class.items() if not count]


@rule('similar-classes', 'warning', 'classes whose names differ only in case and spaces', on='first split',
      why='They may be one class that was spelled in two ways.', do='Unite them, if they are one class')  # fmt: skip
def similar_classes(data: Columns) -> list[str]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in data.objects_by_class:
        alike[' '.join(name.casefold().split())].append(ascii(name))
    return [' and '.join(names) for names in alike.values() if len(names) > 1]


# ---- which classes of another split than the first a rule is about ----


@rule('extra-classes', 'warning', 'categories that the first split does not have, with their objects ignored',
      on='classes', why='A detector cannot find what it was never shown.',
      do='Add them to train, or remove them')  # fmt: skip
def extra_classes(first: Columns, other: Columns) -> list[str]:
    """The classes that only the other split has, if it has all of the first."""
    names, theirs = first.objects_by_class, other.objects_by_class
    extra = [f'{name} ({counted(count, "object")})' for name, count in theirs.items() if name not in names]
    return extra if names.keys() <= theirs.keys() else []


@rule('unlearned-classes', 'warning', 'classes with objects of which train has none, so that all are missed',
      on='classes', why='A detector cannot find what it was never shown.',
      do='Divide the data anew, or correct the names')  # fmt: skip
def unlearned_classes(first: Columns, other: Columns) -> list[str]:
    """The classes with objects of which train has none; they may be misspelled."""
    learned = [name for name, count in first.objects_by_class.items() if count]
    words = [name for name in learned if not re.search(r'\d', name)]
    new = [name for name in first.objects_by_class if name not in learned and other.objects_by_class[name]]
    return [f'{name}{did_you_mean(name, words)}' for name in new] if first.name == 'train' else []
