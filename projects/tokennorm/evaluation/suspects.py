"""Suspects: annotations that the detections contradict, and detections that no annotation explains.

The kinds are those of ObjectLab (Tkachenko et al. 2023), an overlooked object, a swapped class and a bad box, and an
annotated object that is none. Scores are products of shares from 0 to 1, which are counted in the data itself: classes
and detectors with other scores are comparable. Which kinds of errors a dataset has is not known before, so the list
takes the kinds in turn: the four highest scores, the four second ones, and so on.

- The *credibility* of a detection is the share of right ones among the detections of its class with about its score:
  isotonic regression of right, at IoU 0.5, on the score.
- A detection that matches an object, at IoU 0.5, says nothing about others. Detections in crowds do not count.

| kind | what contradicts the annotations | score |
|---|---|---|
| missing | a detection that matches no object | credibility x (1 - IoU with the nearest object) |
| wrong class | a detection of another class at IoU 0.5 | its credibility x (1 - credibility of the object's match) |
| wrong box | a detection of the class at IoU 0.1 | credibility x (1 - IoU) |
| spurious | no detection at IoU 0.1 | (1 - highest credibility there) x (1 - 5 x share of its class) |

The share of a class is that of its objects at which the highest score of a detection is not higher: other objects that
are not found are hard ones, not errors. An object has the kind with the highest score. Of several detections at one
place the most credible one counts. IoU is that of masks where masks are evaluated.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from tokennorm.datasets.coco.entries import original_id
from tokennorm.evaluation.results import CocoResults

LEAST = 0.25  # score of a suspect
SAME, NEAR = 0.5, 0.1  # IoU
RARE = 5  # spurious objects are among this part of their class, those with the lowest scores


@dataclass(frozen=True)
class Suspect:
    """An annotation that is probably wrong, or a place where one is missing."""

    kind: str  # 'missing', 'wrong class', 'wrong box' or 'spurious'
    score: float  # 0..1, by the table of the module
    image_id: int
    annotation: Mapping[str, Any] | None  # in COCO's form; None for 'missing'
    detection: Mapping[str, Any] | None  # that contradicts it, in COCO's form; None for 'spurious'


def find_suspects(
    ground_truth: Mapping[str, Any],
    detections: CocoResults,
    matches: Mapping[int, int],
    counted: np.ndarray,
    iou_type: str,
) -> list[Suspect]:
    """Returns the suspects, the most suspicious first: the kinds in turn, and each by its score.

    Args:
        ground_truth: Content of a COCO file.
        detections: N detections, also those of low scores.
        matches: Ids of the objects that detections match, by the row of the detection.
        counted: (N,) bool, detections that are not inside of a crowd.
        iou_type: 'bbox' or 'segm'.
    """
    credible = credibility(detections, np.array([i in matches for i in range(len(detections))], bool), counted)
    rows: dict[int, list[int]] = defaultdict(list)
    objects: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in np.flatnonzero(counted).tolist():
        rows[int(detections.table[row, 0])].append(row)
    for one in ground_truth['annotations']:
        if not one.get('iscrowd'):
            objects[one['image_id']].append(one)
    suspects, expected = list[Suspect](), dict[int, tuple[float, float]]()
    for image in ground_truth['images']:
        own = np.array(rows[image['id']], int)
        suspects += _of_image(image, own, objects[image['id']], detections, matches, credible, iou_type, expected)
    suspects += _spurious(ground_truth, objects, expected)
    best: dict[Any, Suspect] = {}
    for i, one in enumerate(suspects):
        key = ('missing', i) if one.annotation is None else one.annotation['id']
        if one.score >= LEAST and (key not in best or one.score > best[key].score):
            best[key] = one
    ranks, ranked = Counter[str](), list[tuple[int, Suspect]]()
    for one in sorted(best.values(), key=lambda one: -one.score):
        ranks[one.kind] += 1
        ranked.append((ranks[one.kind], one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def credibility(detections: CocoResults, right: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Returns (N,) the share of right detections among those of a class with about the same score."""
    credible = np.zeros(len(detections))
    for category in np.unique(detections.table[:, 6]):
        own = np.flatnonzero(counted & (detections.table[:, 6] == category))
        if len(own):
            _, place, count = np.unique(detections.scores[own], return_inverse=True, return_counts=True)
            share = np.bincount(place, right[own]) / count
            credible[own] = isotonic_regression(share, weights=count).x[place]
    return credible


def _of_image(
    image: Mapping[str, Any],
    rows: np.ndarray,
    objects: list[dict[str, Any]],
    detections: CocoResults,
    matches: Mapping[int, int],
    credible: np.ndarray,
    iou_type: str,
    expected: dict[int, tuple[float, float]],
) -> list[Suspect]:
    """The suspects of an image but for the spurious ones.

    `expected` gets the highest credibility and the highest score of the detections at each object.
    """
    overlaps, suspects, used = detections.overlaps(rows, objects, image, iou_type), list[Suspect](), set[int]()
    matched = np.array([matches.get(row, -1) for row in rows.tolist()], int)
    own = credible[rows]

    def best(mask: np.ndarray) -> int | None:
        """The index in `rows` of the most credible of some detections."""
        return int(np.where(mask, own, -1).argmax()) if mask.any() else None

    def add(kind: str, score: float, one: dict[str, Any] | None, index: int) -> None:
        if score >= LEAST:
            detection = detections.select(rows[[index]]).results()[0]
            suspects.append(Suspect(kind, float(score), image['id'], one, detection))

    for column, one in enumerate(objects):
        mine, same = matched == one['id'], detections.table[rows, 6] == one['category_id']
        near = (mine | (matched == -1)) & (overlaps[:, column] >= NEAR)
        expected[one['id']] = float(own[near].max(initial=0)), float(detections.scores[rows[near]].max(initial=0))
        if (box := best(mine if mine.any() else near & same)) is not None:
            add('wrong box', own[box] * (1 - overlaps[box, column]), one, box)
            used.add(box)
        other = near & ~same & ~mine & (overlaps[:, column] >= SAME)
        if (swapped := best(other)) is not None:
            add('wrong class', own[swapped] * (1 - own[mine].max(initial=0)), one, swapped)
            used.update(np.flatnonzero(other).tolist())
    nearest, places = overlaps.max(1, initial=0), list[int]()
    for i in np.argsort(-own, kind='stable').tolist():
        if matched[i] != -1 or i in used or own[i] < LEAST:
            continue
        box = dict(bbox=detections.table[rows[i], 1:5])
        if not places or detections.overlaps(rows[places], [box], image, 'bbox').max() < SAME:
            places.append(i)
            add('missing', own[i] * (1 - nearest[i]), None, i)
    return suspects


def _spurious(
    ground_truth: Mapping[str, Any],
    objects: Mapping[Any, list[dict[str, Any]]],
    expected: Mapping[int, tuple[float, float]],
) -> list[Suspect]:
    suspects = []
    for category in ground_truth['categories']:
        own = [one for some in objects.values() for one in some if one['category_id'] == category['id']]
        values, scores = np.array([expected[one['id']] for one in own]).reshape(-1, 2).T
        share = np.searchsorted(np.sort(scores), scores, 'right') / max(len(own), 1)
        for one, score in zip(own, ((1 - values) * (1 - RARE * share)).tolist(), strict=True):
            suspects.append(Suspect('spurious', score, one['image_id'], one, None))
    return suspects


def describe(suspect: Suspect, names: Mapping[Any, str]) -> str:
    """Returns a suspect in words, such as 'wrong class (0.93): annotated as RBC, detected as WBC with score 0.64'."""
    annotated = 'no annotation' if suspect.annotation is None else _as('annotated', suspect.annotation, names)
    detected = 'not detected'
    if suspect.detection is not None:
        detected = f'{_as("detected", suspect.detection, names)} with score {suspect.detection["score"]:.2f}'
    return f'{suspect.kind} ({suspect.score:.2f}): {annotated}, {detected}'


def _as(verb: str, one: Mapping[str, Any], names: Mapping[Any, str]) -> str:
    return f'{verb} as {names[one["category_id"]]}'.removesuffix(' as ')


def as_rows(suspects: Sequence[Suspect], ground_truth: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns suspects as a report has them: names of files and classes, boxes, and the user's own id of the object."""
    files = {one['id']: one['file_name'] for one in ground_truth['images']}
    names = {one['id']: one['name'] for one in ground_truth['categories']}
    rows = []
    for one in suspects:
        row: dict[str, Any] = dict(file=files[one.image_id], kind=one.kind, score=round(one.score, 4))
        row |= dict.fromkeys(('id', 'annotation_id', 'annotated', 'box', 'detected', 'detected_box', 'detection_score'))
        if (annotation := one.annotation) is not None:
            name = names[annotation['category_id']]
            row |= dict(
                id=annotation['id'], annotation_id=original_id(annotation), annotated=name, box=annotation['bbox']
            )
        if (found := one.detection) is not None:
            name = names[found['category_id']]
            row |= dict(detected=name, detected_box=found['bbox'], detection_score=found['score'])
        rows.append(row)
    return rows
