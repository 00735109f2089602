"""mmdet's COCO metric, evaluated by hotcoco where it is installed."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from mmdet.evaluation import CocoMetric as MMDetCocoMetric
from mmengine.logging import MMLogger

from tokennorm.base.files import as_json
from tokennorm.base.messages import did_you_mean
from tokennorm.datasets.coco.entries import original_id
from tokennorm.evaluation.average_precision import COCO_AP, COCO_AR, average_precision, average_recall
from tokennorm.evaluation.results import CocoResults
from tokennorm.registry import METRICS


@METRICS.register_module()
class CocoMetric(MMDetCocoMetric):
    """COCO AP with mmdet's arguments, names and values, evaluated by hotcoco (times: `benchmarks/coco_metric.py`).

    mmdet's own evaluation runs where hotcoco is not installed, for `proposal` metrics, with `format_only`, and without
    `ann_file`. Both give the same numbers, including mmdet's two limits: `mAP` counts the 100 best detections per image
    and class, the other values `proposal_nums[2]`; with `use_mp_eval` all values count `proposal_nums[-1]`. One
    exception: if `proposal_nums` has no 100, `mAP` counts `proposal_nums[2]` too, and mmdet's is -1. And where the
    loader reads some images of the file only (`indices`), objects in the others count as missed in mmdet, and not here.
    With `classwise`, mmdet gives the AP of a class to another one where the ids of the file's categories do not ascend.

    `detections` are those of the last evaluation by 'bbox' or 'segm', on the main process only.

    Raises:
        ValueError: for `metric_items` that do not exist, and for fewer than three `proposal_nums` where a metric
            other than 'proposal_fast' is evaluated.
    """

    def __init__(
        self,
        ann_file: str | None = None,
        *args: Any,
        proposal_nums: Sequence[int] = (100, 300, 1000),
        metric_items: str | Sequence[str] | None = None,
        iou_thrs: float | Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(metric_items, str):
            metric_items = [metric_items]
        for item in metric_items or ():
            if item not in COCO_AP and item not in COCO_AR:
                known = [*COCO_AP, *COCO_AR]
                raise ValueError(f'metric_items has {item!r}{did_you_mean(item, known)}; expected {", ".join(known)}')
        iou_thrs = None if iou_thrs is None else np.atleast_1d(iou_thrs)
        proposal_nums = tuple(map(int, proposal_nums))
        chosen = dict(proposal_nums=proposal_nums, metric_items=metric_items, iou_thrs=iou_thrs)
        super().__init__(ann_file, *args, **chosen, **kwargs)
        by_limits = [metric for metric in self.metrics if metric != 'proposal_fast' and not self.format_only]
        if by_limits and len(proposal_nums) < 3:
            text = 'must be three limits or more, such as (100, 300, 1000); only proposal_fast takes any number'
            raise ValueError(f'proposal_nums={proposal_nums!r} with metric={by_limits[0]!r} {text}')
        self.ann_file = ann_file
        self._read_ids: list[int] | None = None  # `img_ids` of the last evaluation, unless a caller chose them
        self.detections: dict[str, CocoResults] = {}

    @property
    def category_ids(self) -> list[int]:
        """Category id of each class of the dataset."""
        return self._coco_api.get_cat_ids(cat_names=self.dataset_meta['classes'])

    @property
    def max_detections(self) -> int:
        """Number of detections per image and class that `mAP` counts."""
        return 100 if 100 in self.proposal_nums and not self.use_mp_eval else self.proposal_nums[self._most]

    @property
    def _most(self) -> int:
        """Index of the limit that values count other than `mAP`: pycocotools takes the third."""
        return -1 if self.use_mp_eval else 2

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Returns AP by mmdet's names. It is 0 where nothing was detected in any image; mmdet then returns none."""
        self.detections = {}
        if self._coco_api is not None and self.img_ids is self._read_ids:
            known, read = self._coco_api.get_img_ids(), {prediction['img_id'] for _, prediction in results}
            before = self._read_ids
            self.img_ids = self._read_ids = [image_id for image_id in known if image_id in read]
            if (count := len(self.img_ids)) < len(known) and self.img_ids != before:
                text = f'AP is that of {count} of the {len(known)} images in {self.ann_file}: others were not read'
                MMLogger.get_current_instance().info(text)
        other = [metric for metric in self.metrics if metric not in ('bbox', 'segm')]
        if self._coco_api is None or self.format_only or other:
            return self._by_mmdet(results)
        predictions = [prediction for _, prediction in results]
        self.cat_ids = self.category_ids
        for iou_type in self.metrics:
            if iou_type == 'segm' and 'masks' not in predictions[0]:
                raise KeyError(f'{iou_type} is not in results')
            masks = iou_type == 'segm'
            self.detections[iou_type] = CocoResults.from_predictions(predictions, self.cat_ids, masks)
        if find_spec('hotcoco') is None:
            return self._by_mmdet(results)
        if self.outfile_prefix is not None:
            self._restore_ids(self.results2json(predictions, self.outfile_prefix))
        logger = MMLogger.get_current_instance()
        values: dict[str, float] = {}
        for iou_type, detections in self.detections.items():
            if not len(detections):
                logger.warning(f'{iou_type}: no detections, so AP is 0. Train longer, or from better weights.')
            values |= self._evaluate(iou_type, detections)
            if values.get(f'{iou_type}_mAP', 0) < 0:
                logger.warning(f'{iou_type}: the images have no objects, so there is no AP; -1 means none.')
        return values

    def _by_mmdet(self, results: list) -> dict[str, float]:
        values = super().compute_metrics(results)
        if self._coco_api is not None and self.outfile_prefix is not None:
            kinds = ('bbox', 'segm') if 'masks' in results[0][1] else ('bbox',)
            self._restore_ids({kind: f'{self.outfile_prefix}.{kind}.json' for kind in kinds})
        return values

    def _restore_ids(self, files: Mapping[str, str]) -> None:
        """Gives the results that were written the ids of the user's own annotation file."""
        entries = (self._coco_api.dataset[kind] for kind in ('images', 'categories'))
        images, categories = ({one['id']: original_id(one) for one in kind} for kind in entries)
        for path in map(Path, set(files.values())):
            results = json.loads(path.read_text(encoding='utf-8'))
            for one in results:
                one.update(image_id=images[one['image_id']], category_id=categories[one['category_id']])
            path.write_text(as_json(results), encoding='utf-8')

    def _evaluate(self, iou_type: str, detections: CocoResults) -> dict[str, float]:
        params = dict(cat_ids=list(self.cat_ids), img_ids=list(self.img_ids), max_dets=list(self.proposal_nums))
        params['iou_thrs'] = [float(value) for value in self.iou_thrs]
        evaluation = detections.evaluate(self._coco_api.dataset, iou_type, **params)
        limit = self.proposal_nums.index(self.max_detections)
        most = dict(limit=self._most)
        stats = {name: average_precision(evaluation, **most, **which) for name, which in COCO_AP.items()}
        stats['mAP'] = average_precision(evaluation, limit=limit)
        stats |= {name: average_recall(evaluation, **(most | which)) for name, which in COCO_AR.items()}
        values = {}
        if self.classwise:
            for label, name in enumerate(self.dataset_meta['classes']):
                ap = average_precision(evaluation, label=label)
                values[f'{name}_precision'] = round(ap, 3) if ap >= 0 else float('nan')
        items = self.metric_items or list(COCO_AP)
        return values | {f'{iou_type}_{item}': round(stats[item], 3) for item in items}
