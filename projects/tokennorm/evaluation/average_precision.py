"""COCO's average precision and average recall (Lin et al., "Microsoft COCO", 2014) from an evaluation's arrays."""

from typing import Any

import numpy as np

AREAS = ('all', 'small', 'medium', 'large')  # objects of any area, below 32^2 pixels, up to 96^2, and above
COCO_AP: dict[str, dict[str, Any]] = {  # mmdet's names: arguments of `average_precision`
    'mAP': dict(),
    'mAP_50': dict(iou=0.5),
    'mAP_75': dict(iou=0.75),
    'mAP_s': dict(area='small'),
    'mAP_m': dict(area='medium'),
    'mAP_l': dict(area='large'),
}
# mmdet's names: arguments of `average_recall`. The numbers in the names are mmdet's default limits, `proposal_nums`.
COCO_AR: dict[str, dict[str, Any]] = {
    'AR@100': dict(limit=0),
    'AR@300': dict(limit=1),
    'AR@1000': dict(limit=2),
    'AR_s@1000': dict(area='small'),
    'AR_m@1000': dict(area='medium'),
    'AR_l@1000': dict(area='large'),
}


def average_precision(
    evaluation: Any, iou: float | None = None, area: str = 'all', label: int | None = None, limit: int = -1
) -> float:
    """Returns AP, the mean of the interpolated precision over recall levels, from 0 to 1; -1 where no object counts.

    Args:
        evaluation: What `CocoResults.evaluate` returns. Axes of its precision: IoU threshold, recall, class, area,
            limit on the detections per image and class.
        iou: One of its IoU thresholds; None is the mean over all of them.
        area: One of `AREAS`.
        label: Index of a class in the order of the evaluation's category ids; None is the mean over the classes.
        limit: Index of the limit on the detections; the last one counts most detections.
    """
    precision = evaluation.eval['precision'][..., AREAS.index(area), limit]
    if iou is not None:
        precision = precision[np.isclose(evaluation.params.iou_thrs, iou)]
    return _mean(precision if label is None else precision[..., label])


def average_recall(evaluation: Any, area: str = 'all', limit: int = -1) -> float:
    """Returns AR, the mean of the recall over IoU thresholds and classes; arguments as of `average_precision`."""
    return _mean(evaluation.eval['recall'][..., AREAS.index(area), limit])


def _mean(values: np.ndarray) -> float:
    counted = values[values > -1]
    return float(counted.mean()) if counted.size else -1.0
