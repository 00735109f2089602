"""AP and time of a detector in PyTorch and in exported files, on the same images, and the effect of padding."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokennorm.base.console import say
from tokennorm.base.messages import UserError, shorten
from tokennorm.datasets.splits import CocoSplit
from tokennorm.engine.rules.model import PADDED_DETECTIONS
from tokennorm.evaluation.average_precision import average_precision
from tokennorm.evaluation.results import CocoResults
from tokennorm.images.pixels import as_pixels
from tokennorm.inference.prediction import Progress
from tokennorm.inference.runtime import BaseDetector, Detections, ExportedDetector

LEAST_SCORE = 0.3  # of detections that are compared
MOST_SCORE, MOST_PIXELS = 0.02, 1.0  # changes by padding
MOST_IMAGES = 10


@dataclass(frozen=True)
class Measured:
    """AP of a detector by 'bbox' or 'segm', in 0..1, and its median time per image."""

    aps: dict[str, float]
    milliseconds: float


def measure(detectors: Sequence[BaseDetector], split: CocoSplit) -> list[Measured]:
    """Evaluates detectors of the same classes, from image files on and with all of their detections.

    Classes that they do not have are left out, with their objects. Each image goes through all of them in turn, so that
    what else the machine does slows all alike.

    Raises:
        UserError: for annotations without images or without a class of the detectors, or different classes.
        ImageError: for an unreadable image.
    """
    ids = {category['name']: category['id'] for category in split.content['categories']}
    if missing := [name for detector in detectors for name in detector.classes if name not in ids]:
        raise UserError(f'the annotations have no class {missing[0]!r}; their classes are {", ".join(ids)}')
    if any(set(detector.classes) != set(detectors[0].classes) for detector in detectors):
        raise UserError('the detectors have different classes: compare those of the same classes')
    known = {ids[name] for name in detectors[0].classes}
    if extra := [name for name, i in ids.items() if i not in known]:
        say(f'Classes that the detector does not have are left out, with their objects: {shorten(extra)}')
    truth = dict(
        split.content,
        categories=[one for one in split.content['categories'] if one['id'] in known],
        annotations=[one for one in split.content['annotations'] if one['category_id'] in known],
    )
    if not split.content['images']:
        raise UserError(f'{split.source} has no images')
    annotations: list[list[dict[str, Any]]] = [[] for _ in detectors]
    seconds: list[list[float]] = [[] for _ in detectors]
    progress = Progress(len(split.content['images']))
    for done, image in enumerate(split.content['images'], 1):
        pixels = as_pixels(split.image_dir / image['file_name'])
        for i, detector in enumerate(detectors):
            begin = time.perf_counter()
            (found,) = detector.detect([pixels])
            seconds[i].append(time.perf_counter() - begin)
            results = found.annotations([ids[name] for name in detector.classes])
            annotations[i] += [one | dict(image_id=image['id']) for one in results]
        progress.show(done)
    progress.close()
    kinds = ['bbox', *['segm'] * (found.masks is not None)]
    return [
        Measured({kind: all_detections_ap(truth, results, kind) for kind in kinds}, 1000 * statistics.median(times))
        for results, times in zip(annotations, seconds, strict=True)
    ]


def all_detections_ap(ground_truth: dict, annotations: list[dict], kind: str) -> float:
    """Returns COCO's AP at IoU 0.5 to 0.95, in 0..1, counting all detections in an image, not only the 100 best."""
    limits = [1, 10, max(100, len(annotations))]
    results = CocoResults.from_annotations(annotations)
    return max(average_precision(results.evaluate(ground_truth, kind, max_dets=limits)), 0.0)


def change_by_padding(detector: ExportedDetector, split: CocoSplit) -> tuple[float, float]:
    """Returns the largest changes of a score and of a side of a box, in pixels, on a canvas of twice an image's sides.

    They are those of the first images of a split. Changes above 0.02 and 1 pixel are reported.
    """
    changes = [(0.0, 0.0)]
    for image in split.content['images'][:MOST_IMAGES]:
        inputs = detector.inputs_of([split.image_dir / image['file_name']])
        (size,) = inputs['sizes']
        padded = np.pad(inputs['images'], [(0, 0), (0, 0), (0, size[0]), (0, size[1])])
        outputs = (detector.run(inputs | dict(images=images)) for images in (inputs['images'], padded))
        alone, on_canvas = (
            detector.detections(*(one[name][0][one['scores'][0] > 0] for name in ('boxes', 'scores', 'labels')), None)
            for one in outputs
        )
        changes.append(largest_changes(alone, on_canvas)[:2])
    score, pixels = np.array(changes).max(0).tolist()
    if score > MOST_SCORE or pixels > MOST_PIXELS:
        text = f'on a canvas of twice the sides scores change by up to {score:.3f}, boxes by {pixels:.1f} pixels'
        PADDED_DETECTIONS.report(detector.checkpoint, text)
    return score, pixels


def largest_changes(alone: Detections, padded: Detections) -> tuple[float, float, int]:
    """Returns the largest change of a score, of a coordinate in pixels, and of the number of detections.

    Detections with a score of 0.3 or more are compared, each with the nearest box of its class. Where there is none the
    score changes to 0.
    """
    score = pixels = 0.0
    number = abs(int((alone.scores >= LEAST_SCORE).sum()) - int((padded.scores >= LEAST_SCORE).sum()))
    for box, value, label in zip(alone.boxes, alone.scores, alone.labels, strict=True):
        same = padded.labels == label
        if value < LEAST_SCORE:
            continue
        if not same.any():
            score = max(score, float(value))
            continue
        distances = np.abs(padded.boxes[same] - box).max(1)
        pixels = max(pixels, float(distances.min()))
        score = max(score, abs(float(padded.scores[same][distances.argmin()]) - float(value)))
    return score, pixels, number
