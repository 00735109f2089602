"""mmdet's own prediction for one image, with shapes that do not depend on the data, for heads without batch decoding.

No head is written anew: a copy of the detector runs its own code. Candidates that it would remove stay where they are,
with a score of 0. Letters of the shapes: K candidates, N detections.
"""

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from mmdet.models.dense_heads import RPNHead, RTMDetInsHead
from mmdet.models.detectors import TwoStageDetector
from mmdet.models.detectors.base import BaseDetector
from mmdet.models.roi_heads.base_roi_head import BaseRoIHead
from mmdet.models.roi_heads.mask_heads import FCNMaskHead
from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tokennorm.export.dense import check_min_bbox_size, decode_dense, nms_threshold
from tokennorm.export.nms import nms_keep
from tokennorm.export.two_stage import aligned_features, check_extractor, check_mask_head, of_labels

MOST = 2**31 - 1  # survivors of non-maximum suppression, if the config has no number


def with_fixed_shapes(detector: BaseDetector) -> BaseDetector:
    """Returns a copy of a detector for `predict_one`."""
    detector = copy.deepcopy(detector)
    for module in detector.modules():
        for exported, check in _CHECKS.items():
            if isinstance(module, exported.__base__):
                check(module)
                module.__class__ = type(f'Exported{type(module).__name__}', (exported, type(module)), {})
        cfg = getattr(module, 'test_cfg', None)
        if isinstance(cfg, Mapping) and cfg.get('nms') and not isinstance(module, RPNHead):
            module.test_cfg = _with_suppression(module)
    return detector


def _with_suppression(module: nn.Module) -> dict[str, Any]:
    """Returns the `test_cfg` of a part with `_suppress` as its non-maximum suppression."""
    cfg = copy.deepcopy(module.test_cfg)
    agnostic = cfg['nms'].pop('class_agnostic', False)
    threshold = nms_threshold(cfg, type(module).__name__)
    check_min_bbox_size(module)
    # One-stage heads apply the lowest score themselves, before other factors of the score.
    lowest = cfg.get('score_thr', 0) if isinstance(module, BaseRoIHead) else 0
    suppress = partial(_suppress, lowest=lowest, count=cfg.get('max_per_img'))
    cfg['nms'] = dict(type=suppress, iou_threshold=threshold, class_agnostic=agnostic, split_thr=MOST)
    return cfg


def predict_one(detector: BaseDetector, x: Tensor, sizes: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
    """Returns boxes (1, N, 4), scores and labels (1, N), and masks (1, N, h, w) of a detector that has them.

    Of a detector of `with_fixed_shapes` for a normalized and padded image (1, 3, H, W), whose height and width without
    padding are `size`, also as a tensor (1, 2). Entries without a detection have score 0, label -1 and a box of zeros.
    """
    sample = DetDataSample()
    meta = dict(img_shape=size, ori_shape=size, batch_input_shape=x.shape[-2:], scale_factor=(1.0, 1.0))
    for name, value in meta.items():
        sample.set_field(value, name, field_type='metainfo')  # `set_metainfo` would copy symbolic sizes
    if isinstance(detector, TwoStageDetector):
        maps = detector.extract_feat(x)
        proposals = _proposals(detector.rpn_head, decode_dense(detector.rpn_head, maps, sizes))
        with _FixedShapes(0):
            (found,) = detector.roi_head.predict(maps, [proposals], [sample], rescale=False)
    else:
        with _FixedShapes(max((detector.bbox_head.test_cfg or {}).get('nms_pre', 0), 0)):
            (found,) = (one.pred_instances for one in detector.predict(x, [sample], rescale=False))
    exists = found.scores > 0
    boxes, labels = found.bboxes * exists[:, None], torch.where(exists, found.labels, -1)
    masks = [found.masks] if 'masks' in found else []
    return tuple(value[None] for value in (boxes, found.scores, labels, *masks))


def _proposals(rpn_head: RPNHead, found: tuple[Tensor, Tensor, Tensor]) -> InstanceData:
    """Returns as many boxes as `test_cfg` allows, the best one again where there are fewer.

    Of equal proposals the non-maximum suppression after the second stage leaves one.
    """
    (boxes,), (scores,), _ = found
    index = torch.arange(rpn_head.test_cfg['max_per_img'], device=boxes.device).clamp(max=boxes.shape[0] - 1)
    return InstanceData(bboxes=torch.where((scores > 0)[index, None], boxes[index], boxes[:1]))


def _suppress(
    boxes: Tensor, scores: Tensor, iou_threshold: float, lowest: float, count: int | None
) -> tuple[Tensor, Tensor]:
    """Non-maximum suppression as mmcv's `batched_nms` calls it: boxes with scores (N, 5), and their indices.

    N is `count`, or the number of candidates; from the last survivor on the best one is repeated with a score of 0.
    """
    scores = torch.where(scores > lowest, scores, 0)
    keep = nms_keep(boxes[None], scores[None, None], iou_threshold, count or MOST)[0, 0]
    count = count or boxes.shape[0]
    best, index = F.pad(scores * keep, (0, count)).topk(count)
    index = torch.where(best > 0, index, index[:1]).clamp(max=boxes.shape[0] - 1)
    return torch.cat([boxes[index], best[:, None]], dim=1), index


class _FixedShapes(TorchFunctionMode):
    """Changes functions of PyTorch whose result has a shape that depends on values, or is a number of Python.

    - What a mask selects is everything, with zeros elsewhere: a candidate without a score is none. Where the number
      depends on the size of the image, `spare` zeros are added, so that mmdet can choose so many for every size.
    - Conditions on values, which are checks, hold.
    - The sizes of feature maps, which are a tensor in deformable attention, are numbers again where they are unpacked,
      and positions along a side of such a map may have any number.
    """

    def __init__(self, spare: int) -> None:
        super().__init__()
        self.spare = spare
        self.sides: list[tuple[Any, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        x = args[0] if args and isinstance(args[0], Tensor) else None
        if func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.bool:
            mask = args[1].reshape(*args[1].shape, *[1] * (x.dim() - args[1].dim()))
            return self._padded(torch.where(mask, x, 0).flatten(0, args[1].dim() - 1))
        if func in (torch.nonzero, Tensor.nonzero) and not (kwargs or {}).get('as_tuple'):
            places = torch.arange(x.numel(), device=x.device)
            columns = []
            for side in reversed(x.shape):
                columns.insert(0, places % side)
                places = places // side
            return self._padded(torch.stack(columns, dim=1))
        if func is Tensor.__len__:
            return x.shape[0] if isinstance(x.shape[0], int) else 1  # compared with that of others only
        if torch.compiler.is_exporting() and func is Tensor.__bool__:
            return True
        if torch.compiler.is_exporting() and func is Tensor.all and len(args) == 1 and not kwargs:
            return False  # candidates are too small: mmdet selects the others by a mask
        if func is torch._shape_as_tensor:
            self.sides.append(tuple(x.shape[-2:]))
            return torch.stack([torch.scalar_tensor(side, dtype=torch.int64) for side in x.shape])
        if func is torch.linspace and not isinstance(args[2], int):  # all of mmdet's have steps of 1
            return torch.arange(args[2], **kwargs) + args[0]
        if func is Tensor.unbind and x.dtype == torch.int64:  # `for height, width in shapes`
            if hasattr(x, 'sides'):
                return x.sides
            if x.shape == (len(self.sides), 2):
                rows = func(*args)
                for row, sides in zip(rows, self.sides, strict=True):
                    row.sides = sides
                return rows
        return func(*args, **(kwargs or {}))

    def _padded(self, rows: Tensor) -> Tensor:
        if isinstance(rows.shape[0], int):
            return rows
        return F.pad(rows, (*[0, 0] * (rows.dim() - 1), 0, self.spare))


class _RoIFeatures(SingleRoIExtractor):
    """Features of each box from the level that fits its size, without a choice of boxes for each level."""

    def forward(self, feats: Any, rois: Tensor, roi_scale_factor: float | None = None) -> Tensor:
        """(K, 5) -> (K, channels, h, w)."""
        return aligned_features(self, feats, rois, roi_scale_factor)


class _MaskInBox(FCNMaskHead):
    """Masks as probabilities within each box."""

    def _predict_by_feat_single(
        self, mask_preds: Tensor, bboxes: Tensor, labels: Tensor, *args: Any, activate_map: bool = False, **kwargs: Any
    ) -> Tensor:
        chosen = of_labels(mask_preds, labels)
        return chosen if activate_map else chosen.sigmoid()


class _MaskLogits(RTMDetInsHead):
    """Masks as logits of the canvas, not enlarged."""

    def _bbox_mask_post_process(self, results: InstanceData, mask_feat: Tensor, **kwargs: Any) -> InstanceData:
        found = super()._bbox_mask_post_process(results, mask_feat, **kwargs)
        found.masks = self._mask_predict_by_feat_single(mask_feat, found.kernels, found.priors)
        return found


_CHECKS = {_RoIFeatures: check_extractor, _MaskInBox: check_mask_head, _MaskLogits: lambda head: None}
