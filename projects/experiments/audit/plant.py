"""Plants errors into the annotations of a split, and counts how many of them a list of suspects finds."""

import copy
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

KINDS = 'wrong class', 'missing', 'wrong box', 'spurious'
HIT = 0.5  # IoU of a suspect's box with a planted error
TRIES = 200  # of drawing a place, before another object is drawn


def plant(content: dict[str, Any], rate: float, seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns a copy of COCO content with errors in `rate` of its objects, and the errors.

    The kinds follow each other in turn, without 'wrong class' where there is one class. Of each error: kind, image id,
    and the boxes at which a suspect finds it.

    - wrong class: another class, drawn evenly.
    - missing: the object is removed.
    - wrong box: moved by 0.25 to 0.5 of its sides, right or left and up or down, so that its IoU with the old box is
      0.1 to 0.4. The errors have both boxes.
    - spurious: a box of the class and size of another object, in a random image, where its IoU with all is below 0.1.
    """
    rng, content = random.Random(f'{seed} {rate}'), copy.deepcopy(content)
    classes = [one['id'] for one in content['categories']]
    kinds = [kind for kind in KINDS if kind != 'wrong class' or len(classes) > 1]
    objects = [one for one in content['annotations'] if not one.get('iscrowd')]
    sizes = {one['id']: (one['width'], one['height']) for one in content['images']}
    rest, errors, removed = rng.sample(objects, len(objects)), list[dict[str, Any]](), set()
    while rest and len(errors) < rate * len(objects) - 0.5:
        one, kind = rest.pop(), kinds[len(errors) % len(kinds)]
        image_id, boxes = one['image_id'], [list(one['bbox'])]
        if kind == 'wrong class':
            one['category_id'] = rng.choice([other for other in classes if other != one['category_id']])
        elif kind == 'missing':
            removed.add(one['id'])
        elif kind == 'wrong box':
            if (box := _moved(one['bbox'], sizes[image_id], rng)) is None:
                continue
            one['bbox'] = box
            boxes.append(box)
        else:
            if (place := _free_place(one['bbox'][2:], content, rng)) is None:
                continue
            image_id, box = place
            boxes = [box]
            new_id = max(other['id'] for other in content['annotations']) + 1
            content['annotations'].append(dict(one, id=new_id, image_id=image_id, bbox=box, area=box[2] * box[3]))
        errors.append(dict(kind=kind, image_id=image_id, boxes=boxes))
    content['annotations'] = [one for one in content['annotations'] if one['id'] not in removed]
    for one in content['annotations']:
        one.pop('segmentation', None)
    return content, errors


def _moved(box: Sequence[float], size: tuple[int, int], rng: random.Random) -> list[float] | None:
    for _ in range(TRIES):
        steps = [rng.choice((-1, 1)) * rng.uniform(0.25, 0.5) * side for side in box[2:]]
        low = [max(0, box[i] + steps[i]) for i in (0, 1)]
        high = [min(size[i], box[i] + box[i + 2] + steps[i]) for i in (0, 1)]
        new = [*low, high[0] - low[0], high[1] - low[1]]
        if min(new[2:]) > 1 and 0.1 <= overlaps([new], [box])[0, 0] <= 0.4:
            return new
    return None


def _free_place(sides: Sequence[float], content: dict[str, Any], rng: random.Random) -> tuple[Any, list[float]] | None:
    for _ in range(TRIES):
        image = rng.choice(content['images'])
        room = [image['width'] - sides[0], image['height'] - sides[1]]
        if min(room) < 0:
            continue
        box = [rng.uniform(0, room[0]), rng.uniform(0, room[1]), *sides]
        others = [one['bbox'] for one in content['annotations'] if one['image_id'] == image['id']]
        if not others or overlaps([box], others).max() < 0.1:
            return image['id'], box
    return None


def overlaps(boxes: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> np.ndarray:
    """Returns the IoU (N, M) of boxes as x, y, width, height."""
    pair = (np.array(some, float).reshape(-1, 4) for some in (boxes, others))
    return np.asarray(run_lengths.iou(*pair, [0] * len(others))).reshape(len(boxes), len(others))


def count_found(suspects: Sequence[dict[str, Any]], errors: Sequence[dict[str, Any]], first: int) -> dict[str, Any]:
    """Counts what the first suspects of a list find. A suspect has an image id, boxes and a kind.

    It finds an error of its image if one of its boxes has an IoU of at least 0.5 with one of the error's. Several
    suspects may find one error; `found` counts errors, `right` suspects, `same_kind` errors found as what they are.
    """
    found, right, same = set(), 0, set()
    for one in suspects[:first]:
        hits = {
            i
            for i, error in enumerate(errors)
            if error['image_id'] == one['image_id'] and overlaps(one['boxes'], error['boxes']).max() >= HIT
        }
        found |= hits
        right += bool(hits)
        same |= {i for i in hits if errors[i]['kind'] == one['kind']}
    return dict(listed=min(first, len(suspects)), right=right, found=len(found), same_kind=len(same))
