"""mmdet's COCO metric, evaluated by hotcoco where it is installed."""

import io
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Any

from mmdet.datasets.api_wrappers import COCOeval, COCOevalMP
from mmdet.evaluation import CocoMetric as MMDetCocoMetric
from mmengine.logging import MMLogger

from tokennorm.evaluation.results import CocoResults
from tokennorm.registry import METRICS

# pycocotools' `stats`, by mmdet's names
_STATS = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l', 'AR@100', 'AR@300', 'AR@1000')
_STATS += ('AR_s@1000', 'AR_m@1000', 'AR_l@1000')


@METRICS.register_module()
class CocoMetric(MMDetCocoMetric):
    """COCO AP with mmdet's arguments, names and values, evaluated by hotcoco (times: `benchmarks/coco_metric.py`).

    mmdet's own evaluation runs where hotcoco is not installed, for `proposal` metrics, with `classwise` or
    `format_only`, and without `ann_file`. Both give the same numbers, including mmdet's two limits: `mAP` counts the
    100 best detections per image, the other values `proposal_nums[-1]`; with `use_mp_eval` all values count
    `proposal_nums[-1]`.
    `detections` are those of the last evaluation by 'bbox' or 'segm', on the main process only.
    """

    def __init__(self, ann_file: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(ann_file, *args, **kwargs)
        self.ann_file = ann_file
        self.detections: dict[str, CocoResults] = {}

    @property
    def category_ids(self) -> list[int]:
        """Category id of each class of the dataset."""
        return self._coco_api.get_cat_ids(cat_names=self.dataset_meta['classes'])

    @property
    def max_detections(self) -> int:
        """Number of detections per image and class that `mAP` counts."""
        return self.proposal_nums[-1] if self.use_mp_eval else 100

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Returns AP by mmdet's names. It is 0 where nothing was detected in any image; mmdet then returns none."""
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
            self.detections[iou_type] = CocoResults.from_predictions(predictions, self.cat_ids, masks)
        if self.classwise or find_spec('hotcoco') is None:
            return super().compute_metrics(results)
        if self.outfile_prefix is not None:
            self.results2json(predictions, self.outfile_prefix)
        logger = MMLogger.get_current_instance()
        values: dict[str, float] = {}
        for iou_type, detections in self.detections.items():
            if not len(detections):
                logger.warning(f'{iou_type}: no detections, so AP is 0. Train longer, or from better weights.')
            values.update(self._evaluate(iou_type, detections, logger))
        return values

    def _evaluate(self, iou_type: str, detections: CocoResults, logger: MMLogger) -> dict[str, float]:
        params = dict(cat_ids=list(self.cat_ids), img_ids=list(self.img_ids), max_dets=list(self.proposal_nums))
        params['iou_thrs'] = [float(value) for value in self.iou_thrs]
        evaluation = detections.evaluate(self._coco_api.dataset, iou_type, **params)
        summary = (COCOevalMP if self.use_mp_eval else COCOeval)(iouType=iou_type)  # its limits on detections differ
        summary.params.maxDets, summary.params.iouThrs = list(self.proposal_nums), self.iou_thrs
        summary.eval = evaluation.eval
        with redirect_stdout(io.StringIO()) as printed:
            summary.summarize()
        logger.info(f'Results of {iou_type}:\n{printed.getvalue()}')
        stats = dict(zip(_STATS, summary.stats.tolist(), strict=True))
        items = self.metric_items or _STATS[:6]
        return {f'{iou_type}_{item}': round(stats[item], 3) for item in items}
