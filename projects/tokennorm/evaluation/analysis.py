"""Evaluates detections with hotcoco: AP, score thresholds, confusions, error types, worst images."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokennorm.evaluation.average_precision import COCO_AP, average_precision
from tokennorm.evaluation.results import CocoResults
from tokennorm.evaluation.suspects import Suspect, find_suspects

MATCH_IOU = 0.5  # a detection is right if its IoU with an object of its class is at least this
DEFAULT_THRESHOLD = 0.5  # where no detection is right
TIDE = {
    'Cls': 'Classification',
    'Loc': 'Localization',
    'Both': 'Both',
    'Dupe': 'Duplicate',
    'Bkg': 'Background',
    'Miss': 'Missed',
}


@dataclass(frozen=True)
class OperatingPoint:
    """Precision, recall and F1 of all detections whose score is at least `threshold`, at IoU 0.5."""

    threshold: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class ClassResult:
    """Result of one class. AP and operating point are None without objects or without a right detection."""

    name: str
    images: int
    objects: int
    ap: float | None
    ap50: float | None
    best: OperatingPoint | None


@dataclass(frozen=True)
class ImageErrors:
    """Errors in one image at the report's score threshold: false detections and missed objects."""

    image_id: int
    false: int
    missed: int
    right: int


@dataclass(frozen=True)
class Evaluation:
    """Everything that the report says about a detector's accuracy. K classes; R = 101 recall levels."""

    iou_type: str  # 'bbox' or 'segm'
    summary: dict[str, float]  # COCO's values, keys of `COCO_AP`; -1 where no object counts
    classes: list[ClassResult]  # results per class, in the order of the category ids
    precisions: np.ndarray  # (K, R) interpolated precision at IoU 0.5; -1 for a class without objects
    best: OperatingPoint | None  # operating point with the best F1 over all classes; None if no detection is right
    threshold: float  # score threshold of confusion matrix, error counts and galleries: that of `best`
    sweep: np.ndarray  # (n, 4) score, precision, recall and F1 over all classes, by descending score
    # (K + 1, K + 1) counts at `threshold`: rows are objects, columns detections; last: background
    confusion: np.ndarray
    tide: dict[str, float]  # AP50 lost to each error type of TIDE, keys of `TIDE`
    error_counts: dict[str, int]  # errors of each type among the detections above `threshold`
    images: list[ImageErrors]  # errors per image at `threshold`, the worst first
    suspects: list[Suspect]  # annotations that the detections contradict, the most suspicious first
    # detections above `threshold`. A detection inside of a crowd region does not count, and is not kept.
    kept: CocoResults
    drawn: CocoResults  # detections from half of the threshold on, for pictures; no others in a crowd region either
    right: np.ndarray  # (n,) bool, whether each of `drawn` is right
    found: dict[int, float]  # id of an object that a detection of `drawn` found: the score of this detection

    def class_thresholds(self) -> dict[str, float]:
        """Returns the threshold of each class; for a class without a right detection that of all classes together."""
        return {c.name: self.threshold if c.best is None else c.best.threshold for c in self.classes}


def select_categories(
    ground_truth: dict[str, Any], category_ids: Sequence[int] | None, image_ids: Sequence[int] | None = None
) -> dict[str, Any]:
    """Returns the annotations of some categories, sorted by category id, and of some images; None takes all."""
    if image_ids is not None:
        kept = set(image_ids)
        images = [image for image in ground_truth['images'] if image['id'] in kept]
        annotations = [a for a in ground_truth.get('annotations', []) if a['image_id'] in kept]
        ground_truth = dict(ground_truth, images=images, annotations=annotations)
    known = {category['id'] for category in ground_truth['categories']}
    chosen = known if category_ids is None else known & set(category_ids)
    return dict(
        images=ground_truth['images'],
        annotations=[a for a in ground_truth.get('annotations', []) if a['category_id'] in chosen],
        categories=sorted((c for c in ground_truth['categories'] if c['id'] in chosen), key=lambda c: c['id']),
    )


def evaluate(
    ground_truth: dict[str, Any], detections: CocoResults, iou_type: str = 'bbox', max_detections: int = 100
) -> Evaluation:
    """Evaluates detections of all images, against annotations of the categories of `select_categories` only."""
    limits = [1, 10, max_detections]
    full = detections.evaluate(ground_truth, iou_type, max_dets=limits)
    pairs = full.image_diagnostics(iou_thr=MATCH_IOU)
    status = pairs['dt_status']  # ids count the rows of the table from 1
    matches = {i - 1: pairs['dt_match'][i] for i, state in status.items() if state == 'tp'}
    counted = np.array([i + 1 in status for i in range(len(detections))], bool)
    right = np.array([status.get(i + 1) == 'tp' for i in range(len(detections))], bool)
    objects = [a for a in ground_truth['annotations'] if not a.get('iscrowd')]
    sweep = sweep_thresholds(detections.scores[counted], right[counted], len(objects))
    best = best_point(sweep)
    threshold = DEFAULT_THRESHOLD if best is None else best.threshold

    kept = detections.select(counted & (detections.scores >= threshold))
    drawn = counted & (detections.scores >= threshold / 2)
    scores = {i: float(detections.scores[match - 1]) for i, match in pairs['gt_match'].items()}
    cut = kept.evaluate(ground_truth, iou_type, max_dets=limits)
    diagnostics = cut.image_diagnostics(iou_thr=MATCH_IOU, score_thr=threshold)
    images = [
        ImageErrors(int(i), entry['fp'], entry['fn'], entry['tp']) for i, entry in diagnostics['img_summary'].items()
    ]
    tide, cut_tide = full.tide_errors(pos_thr=MATCH_IOU), cut.tide_errors(pos_thr=MATCH_IOU)
    return Evaluation(
        iou_type=iou_type,
        summary={name: average_precision(full, **which) for name, which in COCO_AP.items()},
        classes=_class_results(ground_truth, full, detections, counted, right),
        precisions=full.eval['precision'][0, :, :, 0, -1].T,
        best=best,
        threshold=threshold,
        sweep=sweep,
        confusion=cut.confusion_matrix(iou_thr=MATCH_IOU)['matrix'].astype(np.int64),
        tide={key: float(tide['delta_ap'][key]) for key in TIDE},
        error_counts={key: int(cut_tide['counts'][key]) for key in TIDE},
        images=sorted(images, key=lambda e: (-(e.false + e.missed), e.right, e.image_id)),
        suspects=find_suspects(ground_truth, detections, matches, counted, iou_type),
        kept=kept,
        drawn=detections.select(drawn),
        right=right[drawn],
        found={i: score for i, score in scores.items() if score >= threshold / 2},
    )


def sweep_thresholds(scores: np.ndarray, right: np.ndarray, num_objects: int) -> np.ndarray:
    """Returns (n, 4): each distinct score as a threshold, and its precision, recall and F1, by descending score."""
    order = np.argsort(-scores, kind='stable')
    scores, hits = scores[order], np.cumsum(right[order])
    last = np.append(scores[1:] != scores[:-1], True)[: len(scores)]  # the last detection of each score
    count = np.arange(1, len(scores) + 1)
    columns = [scores, hits / count, hits / max(num_objects, 1), 2 * hits / (count + num_objects)]
    return np.column_stack(columns)[last]


def best_point(sweep: np.ndarray) -> OperatingPoint | None:
    """Returns the row of `sweep_thresholds` with the best F1; None if no detection is right."""
    if not len(sweep) or sweep[:, 3].max() == 0:
        return None
    return OperatingPoint(*(float(value) for value in sweep[sweep[:, 3].argmax()]))


def _class_results(
    ground_truth: dict[str, Any], full: Any, detections: CocoResults, counted: np.ndarray, right: np.ndarray
) -> list[ClassResult]:
    objects = [a for a in ground_truth['annotations'] if not a.get('iscrowd')]
    num_objects = Counter(a['category_id'] for a in objects)
    num_images = Counter(category_id for _, category_id in {(a['image_id'], a['category_id']) for a in objects})
    results = []
    for k, category in enumerate(ground_truth['categories']):
        mine = counted & (detections.table[:, 6] == category['id'])
        count = num_objects[category['id']]
        results.append(
            ClassResult(
                name=category['name'],
                images=num_images[category['id']],
                objects=count,
                ap=average_precision(full, label=k) if count else None,
                ap50=average_precision(full, iou=0.5, label=k) if count else None,
                best=best_point(sweep_thresholds(detections.scores[mine], right[mine], count)),
            )
        )
    return results
