"""mmdet's COCO metric, evaluated by hotcoco where it is installed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mmdet.evaluation import CocoMetric as MMDetCocoMetric
from mmengine.logging import MMLogger

from tokennorm.datasets.coco.detections import Detections
from tokennorm.registry import METRICS

try:
    import hotcoco
except ImportError:
    hotcoco = None

# Order of pycocotools' `stats`: name, IoU threshold (None: the mean over all), area range.
_PRECISIONS = (
    ('mAP', None, 0),
    ('mAP_50', 0.5, 0),
    ('mAP_75', 0.75, 0),
    ('mAP_s', None, 1),
    ('mAP_m', None, 2),
    ('mAP_l', None, 3),
)


@METRICS.register_module()
class CocoMetric(MMDetCocoMetric):
    """COCO AP with mmdet's arguments, names and values, evaluated by hotcoco (times: `benchmarks/coco_metric.py`).

    mmdet's own evaluation runs where hotcoco is not installed, for `proposal`
    metrics, with `format_only`, and without `ann_file`. Both give the same numbers, including mmdet's two limits: `mAP`
    counts the 100 best detections per image, the other values `proposal_nums[-1]`; with `use_mp_eval` all values count
    `proposal_nums[-1]`.

    Attributes:
        ann_file: The annotation file.
        detections: Detections of the last evaluation by 'bbox' or 'segm', on the main process only.
    """

    def __init__(self, ann_file: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(ann_file, *args, **kwargs)
        self.ann_file = ann_file
        self.detections: dict[str, Detections] = {}

    @property
    def category_ids(self) -> list[int]:
        """Category id of each class of the dataset."""
        return self._coco_api.get_cat_ids(cat_names=self.dataset_meta['classes'])

    @property
    def max_detections(self) -> int:
        """Number of detections per image and class that `mAP` counts."""
        return self.proposal_nums[-1] if self.use_mp_eval else 100

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Returns AP by mmdet's names; empty where nothing was detected in any image, as mmdet does."""
        self.detections = {}
        other = [metric for metric in self.metrics if metric not in ('bbox', 'segm')]
        if self._coco_api is None or self.format_only or other:
            return super().compute_metrics(results)
        predictions = [prediction for _, prediction in results]
        self.cat_ids = self.category_ids
        if self.img_ids is None:  # as mmdet: a caller may restrict the evaluation to some images
            self.img_ids = self._coco_api.get_img_ids()
        for iou_type in self.metrics:
            if iou_type == 'segm' and 'masks' not in predictions[0]:
                raise KeyError(f'{iou_type} is not in results')
            masks = iou_type == 'segm'
            self.detections[iou_type] = Detections.from_predictions(predictions, self.cat_ids, masks)
        if hotcoco is None:
            return super().compute_metrics(results)
        if self.outfile_prefix is not None:
            self.results2json(predictions, self.outfile_prefix)
        logger = MMLogger.get_current_instance()
        values: dict[str, float] = {}
        for iou_type, detections in self.detections.items():
            if not len(detections):
                logger.error('The testing results of the whole dataset is empty.')
                break
            values.update(self._evaluate(iou_type, detections, logger))
        return values

    def _evaluate(self, iou_type: str, detections: Detections, logger: MMLogger) -> dict[str, float]:
        evaluation = hotcoco_evaluation(self._coco_api.dataset, detections, iou_type)
        params = evaluation.params
        params.cat_ids, params.img_ids = list(self.cat_ids), list(self.img_ids)
        params.max_dets, params.iou_thrs = list(self.proposal_nums), [float(t) for t in self.iou_thrs]
        evaluation.evaluate()
        evaluation.accumulate()
        stats = summarize(evaluation.eval, self.iou_thrs, self.proposal_nums, self.max_detections)
        logger.info(summary_text(stats, iou_type, self.proposal_nums, self.max_detections))
        logger.info(f'{iou_type}_mAP_copypaste: ' + ' '.join(f'{stats[name]:.3f}' for name, *_ in _PRECISIONS))
        items = self.metric_items or [name for name, *_ in _PRECISIONS]
        unknown = [item for item in items if item not in stats]
        if unknown:
            raise KeyError(f'metric item "{unknown[0]}" is not supported')
        values = {f'{iou_type}_{item}': round(stats[item], 3) for item in items}
        if self.classwise:
            values = self._classwise(evaluation, logger) | values
        return values

    def _classwise(self, evaluation: Any, logger: MMLogger) -> dict[str, float]:
        """Returns the AP of each class under mmdet's name, and logs a table."""
        precision = evaluation.eval['precision'][..., -1]
        values, lines = {}, []
        for k, category_id in enumerate(evaluation.params.cat_ids):
            name = self._coco_api.cats[category_id]['name']
            ap = _mean(precision[:, :, k, 0], empty=math.nan)
            values[f'{name}_precision'] = round(ap, 3)
            lines.append(f'{name}: {ap:.3f}')
        logger.info('AP per class\n' + '\n'.join(lines))
        return values


def hotcoco_evaluation(ground_truth: dict[str, Any], detections: Detections, iou_type: str) -> Any:
    """Returns a `hotcoco.COCOeval` whose parameters are the defaults, not yet evaluated."""
    if hotcoco is None:
        raise ImportError('hotcoco is not installed: `pip install hotcoco`')
    truth = hotcoco.COCO(ground_truth)
    results: Any = detections.table
    if iou_type == 'segm':  # without boxes, so that the area is the area of the mask
        columns = zip(detections.table.tolist(), detections.masks or [], strict=True)
        results = [
            dict(image_id=int(row[0]), category_id=int(row[6]), score=row[5], segmentation=mask)
            for row, mask in columns
        ]
    return hotcoco.COCOeval(truth, truth.load_res(results), iou_type)


def summarize(
    arrays: dict[str, np.ndarray], iou_thrs: Sequence[float], max_dets: Sequence[int], limit: int
) -> dict[str, float]:
    """Returns pycocotools' twelve summary values by mmdet's names; -1 where no object counts.

    Args:
        arrays: `precision` (T, R, K, A, M) and `recall` (T, K, A, M) of an evaluation: IoU thresholds, recall levels,
            classes, area ranges, limits on the detections.
        iou_thrs: The T thresholds.
        max_dets: The M limits. The last one applies to all values but `mAP`.
        limit: The limit for `mAP`; pycocotools always takes 100.
    """
    precision, recall = arrays['precision'], arrays['recall']
    stats = {}
    for name, threshold, area in _PRECISIONS:
        chosen = precision if threshold is None else precision[np.isclose(iou_thrs, threshold)]
        here = np.array(max_dets) == (limit if name == 'mAP' else max_dets[-1])
        stats[name] = _mean(chosen[:, :, :, area, here])
    for i, number in enumerate((100, 300, 1000)):
        stats[f'AR@{number}'] = _mean(recall[:, :, 0, i])
    for area, letter in enumerate('sml', 1):
        stats[f'AR_{letter}@1000'] = _mean(recall[:, :, area, -1])
    return stats


def summary_text(stats: Mapping[str, float], iou_type: str, max_dets: Sequence[int], limit: int) -> str:
    """Returns the values of `summarize` in the layout of pycocotools, one per line."""
    areas = ('all', 'small', 'medium', 'large')
    lines = [f'Results of {iou_type}:']
    for name, threshold, area in _PRECISIONS:
        iou = '0.50:0.95' if threshold is None else f'{threshold:.2f}'
        most = limit if name == 'mAP' else max_dets[-1]
        lines.append(_line('Average Precision  (AP)', iou, areas[area], most, stats[name]))
    for number, most in zip((100, 300, 1000), max_dets, strict=False):
        lines.append(_line('Average Recall     (AR)', '0.50:0.95', 'all', most, stats[f'AR@{number}']))
    for area in areas[1:]:
        value = stats[f'AR_{area[0]}@1000']
        lines.append(_line('Average Recall     (AR)', '0.50:0.95', area, max_dets[-1], value))
    return '\n'.join(lines)


def _line(title: str, iou: str, area: str, most: int, value: float) -> str:
    return f' {title} @[ IoU={iou:<9} | area={area:>6} | maxDets={most:>3} ] = {value:0.3f}'


def _mean(values: np.ndarray, empty: float = -1.0) -> float:
    """Mean of the entries that exist: -1 marks a class without objects."""
    values = values[values > -1]
    return float(values.mean()) if values.size else empty
