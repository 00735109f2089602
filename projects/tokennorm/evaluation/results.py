"""Detections of a whole data set in columns: their COCO results file, and their evaluation by hotcoco."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as run_lengths

from tokennorm.base.files import as_json, write_atomically
from tokennorm.base.messages import UserError
from tokennorm.datasets.coco.masks import as_run_lengths

# hotcoco refuses a type that it does not expect also in entries that AP does not need, such as CVAT's date_captured=0
_USED = dict(
    images=('id', 'width', 'height'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation'),
    categories=('id', 'name'),
)


class MissingPackageError(UserError, ImportError):
    """A package that evaluation needs is not installed."""


@dataclass(frozen=True)
class CocoResults:
    """Detections of a data set: COCO results without one dict per box."""

    # (N, 7) float64: image id, x, y, width, height, score, category id; boxes in pixels of the original image
    table: np.ndarray
    # one run-length encoding per detection, as pycocotools writes it. None for boxes only.
    masks: list[dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def scores(self) -> np.ndarray:
        """(N,)"""
        return self.table[:, 5]

    def select(self, keep: np.ndarray) -> 'CocoResults':
        """Returns the detections of a boolean mask (N,), or of indices."""
        masks = None if self.masks is None else [self.masks[i] for i in np.arange(len(self))[keep]]
        return CocoResults(self.table[keep], masks)

    def overlaps(
        self, rows: np.ndarray, objects: Sequence[Mapping[str, Any]], image: Mapping[str, Any], iou_type: str
    ) -> np.ndarray:
        """Returns the IoU (n, m) of the detections of n rows with m objects of their image, by 'bbox' or 'segm'."""
        if iou_type == 'segm':
            found: Any = [self.masks[i] for i in rows] if self.masks is not None else []
            truth: Any = [as_run_lengths(one['segmentation'], image['height'], image['width']) for one in objects]
        else:
            found, truth = self.table[rows, 1:5], np.array([one['bbox'] for one in objects], float).reshape(-1, 4)
        return np.asarray(run_lengths.iou(found, truth, [0] * len(objects)), float).reshape(len(rows), len(objects))

    def evaluate(self, ground_truth: dict[str, Any], iou_type: str, **params: Any) -> Any:
        """Returns hotcoco's evaluation of 'bbox' or 'segm' against a COCO file's content, with its arrays in `eval`.

        `params` are entries of `hotcoco.Params` that are not the defaults, such as `max_dets`.
        """
        try:
            import hotcoco
        except ImportError as error:
            raise MissingPackageError('hotcoco is not installed: `pip install hotcoco`') from error
        used = _USED if iou_type == 'segm' else _USED | dict(annotations=_USED['annotations'][:-1])
        truth = hotcoco.COCO(
            {
                kind: [{key: one[key] for key in keys if key in one} for one in ground_truth.get(kind, ())]
                for kind, keys in used.items()
            }
        )
        # without boxes the area is the area of the mask
        results: Any = self.results(with_boxes=False) if iou_type == 'segm' else self.table
        evaluation = hotcoco.COCOeval(truth, truth.load_res(results), iou_type)
        for name, value in params.items():
            setattr(evaluation.params, name, value)
        evaluation.evaluate()
        evaluation.accumulate()
        return evaluation

    @classmethod
    def from_predictions(
        cls, predictions: Sequence[Mapping[str, Any]], category_ids: Sequence[int], masks: bool = False
    ) -> 'CocoResults':
        """Returns the columns of what mmdet's `CocoMetric.process` collects, one dict per image.

        `category_ids` has the id of each label. Masks may have scores of their own, `mask_scores`.
        """
        ids = np.asarray(category_ids, np.float64)
        rows, encodings = [np.zeros((0, 7))], []
        for prediction in predictions:
            boxes = prediction['bboxes'].astype(np.float64).reshape(-1, 4)
            boxes[:, 2:] -= boxes[:, :2]
            scores = prediction.get('mask_scores', prediction['scores']) if masks else prediction['scores']
            image = np.full(len(boxes), prediction['img_id'], np.float64)
            labels = prediction['labels'] if len(boxes) else np.zeros(0, np.int64)  # of no objects, in any dtype
            rows.append(np.column_stack([image, boxes, scores, ids[labels]]))
            if masks:
                encodings += [_as_text(mask) for mask in prediction['masks']]
        return cls(np.concatenate(rows), encodings if masks else None)

    @classmethod
    def read(cls, path: str | Path) -> 'CocoResults':
        """Reads a file that `write` wrote."""
        return cls.from_annotations(json.loads(Path(path).read_text(encoding='utf-8')))

    @classmethod
    def from_annotations(cls, results: Sequence[Mapping[str, Any]]) -> 'CocoResults':
        """Returns the columns of COCO results, one dict per detection."""
        table = [[r['image_id'], *r['bbox'], r['score'], r['category_id']] for r in results]
        masks = [r['segmentation'] for r in results] if results and 'segmentation' in results[0] else None
        return cls(np.array(table, np.float64).reshape(-1, 7), masks)

    @classmethod
    def joined(cls, parts: Sequence['CocoResults']) -> 'CocoResults':
        """Returns the detections of several data sets, whose images have different ids."""
        masks = [mask for part in parts for mask in part.masks or ()]
        return cls(np.concatenate([part.table for part in parts]), masks or None)

    def write(self, path: str | Path) -> None:
        """Writes a COCO results file."""
        write_atomically(path, as_json(self.results(), separators=(',', ':')).encode())

    def results(self, with_boxes: bool = True) -> list[dict[str, Any]]:
        """Returns one dict per detection in COCO's format."""
        results: list[dict[str, Any]] = []
        for i, (image, *box, score, category) in enumerate(self.table.tolist()):
            results.append(dict(image_id=int(image), category_id=int(category), score=score))
            if with_boxes:
                results[-1]['bbox'] = box
            if self.masks is not None:
                results[-1]['segmentation'] = self.masks[i]
        return results


def _as_text(mask: Mapping[str, Any]) -> dict[str, Any]:
    counts = mask['counts']
    return dict(size=list(mask['size']), counts=counts.decode() if isinstance(counts, bytes) else counts)
