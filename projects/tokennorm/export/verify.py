"""Compares the AP of an exported file with that of PyTorch."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mmdet.apis import DetInferencer
from mmengine.utils import track_iter_progress
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.inference import runtime
from tokennorm.inference.prediction import coco_annotations
from tokennorm.inference.runtime import ExportedDetector


@dataclass(frozen=True)
class Comparison:
    """AP of one kind of prediction, in 0..1, by an exported file and by PyTorch."""

    kind: str
    exported: float
    pytorch: float
    images: int
    tolerance: float  # difference that makes them different

    @property
    def equal(self) -> bool:
        """Whether the two differ by less than the tolerance."""
        return abs(self.exported - self.pytorch) < self.tolerance

    def __str__(self) -> str:
        aps = f'exported {100 * self.exported:.2f}, PyTorch {100 * self.pytorch:.2f}'
        differ = 'differ by less than' if self.equal else 'differ by at least'
        return f'{self.kind} AP on {self.images} images: {aps}: they {differ} {100 * self.tolerance:g}'


def compare(inferencer: DetInferencer, path: Path, split: CocoSplit, tolerance: float) -> list[Comparison]:
    """Compares AP of boxes, and of masks where there are any, of an exported file with that of its PyTorch model.

    Both are evaluated from the image files on.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(split.ann_file))
    detector = ExportedDetector(path)
    ids = {category['name']: category['id'] for category in truth.cats.values()}
    missing = [name for name in detector.classes if name not in ids]
    if missing:
        raise ValueError(f'the annotations have no class {missing[0]!r}; their classes are {", ".join(ids)}')
    category_ids = [ids[name] for name in detector.classes]
    exported: list[dict[str, Any]] = []
    pytorch: list[dict[str, Any]] = []
    for image in track_iter_progress(list(truth.imgs.values())):
        file = split.image_dir / image['file_name']
        (found,) = detector([file])
        (sample,) = inferencer([str(file)], return_datasamples=True)['predictions']
        of_image = dict(image_id=image['id'])
        exported += [one | of_image for one in runtime.coco_annotations(found, category_ids)]
        pytorch += [one | of_image for one in coco_annotations(sample, category_ids)]
    print()
    kinds = ['bbox', 'segm'] if detector.metadata['mask_threshold'] is not None else ['bbox']
    aps = {kind: [average_precision(truth, found, kind) for found in (exported, pytorch)] for kind in kinds}
    return [Comparison(kind, *pair, len(truth.imgs), tolerance) for kind, pair in aps.items()]


def average_precision(truth: COCO, annotations: list[dict[str, Any]], kind: str) -> float:
    """Returns COCO's AP at IoU 0.5 to 0.95 of all detections, in 0..1; 0 if there are none."""
    if not annotations:
        return 0.0
    most = max(np.bincount([annotation['image_id'] for annotation in annotations]))
    with contextlib.redirect_stdout(io.StringIO()):
        # loadRes takes the area of masks from the masks.
        evaluation = COCOeval(truth, truth.loadRes(json.loads(json.dumps(annotations))), kind)
        evaluation.params.maxDets = [1, 10, int(max(most, 100))]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval['precision'][:, :, :, 0, -1]
    return float(precision[precision > -1].mean()) if (precision > -1).any() else 0.0
