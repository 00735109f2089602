"""AP and time of a detector in PyTorch and in exported files, on the same images."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokennorm.console import say
from tokennorm.datasets.splits import CocoSplit
from tokennorm.evaluation.average_precision import average_precision
from tokennorm.evaluation.results import CocoResults
from tokennorm.inference.prediction import Progress
from tokennorm.inference.runtime import BaseDetector
from tokennorm.messages import UserError, shorten
from tokennorm.pixels import as_pixels


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
