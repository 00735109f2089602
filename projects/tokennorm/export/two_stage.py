"""The second stage of Faster R-CNN and Mask R-CNN for a whole batch, with shapes that do not depend on the data.

Letters of the shapes: B images, P proposals, N detections, C classes.
"""

from collections.abc import Sequence

import torch
import torchvision
from mmcv.ops import RoIAlign
from mmdet.models.roi_heads import StandardRoIHead
from mmdet.models.roi_heads.bbox_heads import BBoxHead
from mmdet.models.roi_heads.mask_heads import FCNMaskHead
from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
from torch import Tensor, nn

from tokennorm.export.dense import Detections, UnsupportedError, check_decoding, check_methods, nms_threshold
from tokennorm.export.nms import clip, nms_keep, ranked


def check_roi_head(roi_head: nn.Module) -> None:
    """Checks that the second stage is mmdet's standard one."""
    # Those of Mask Scoring R-CNN, PointRend and Double-Head R-CNN refine scores, masks or boxes in their own.
    check_methods(
        roi_head, StandardRoIHead, 'predict', 'predict_bbox', 'predict_mask', '_bbox_forward', '_mask_forward'
    )
    check_methods(roi_head.bbox_head, BBoxHead, '_predict_by_feat_single')
    check_extractor(roi_head.bbox_roi_extractor)
    if roi_head.with_mask:
        check_mask_head(roi_head.mask_head)
        check_extractor(roi_head.mask_roi_extractor)
    if getattr(roi_head, 'with_shared_head', False) or not roi_head.bbox_head.with_reg:
        raise UnsupportedError('a RoI head with a shared head, or without box regression, cannot be exported')
    check_decoding(roi_head.bbox_head)
    nms_threshold(roi_head.test_cfg, type(roi_head).__name__)


def check_extractor(extractor: nn.Module) -> None:
    """Checks that RoIs get features as mmdet's `SingleRoIExtractor` and mmcv's `RoIAlign` compute them."""
    check_methods(extractor, SingleRoIExtractor, 'forward')
    for layer in extractor.roi_layers:
        check_methods(layer, RoIAlign, 'forward')
        if layer.pool_mode != 'avg':
            raise UnsupportedError(f"RoIAlign with pool_mode={layer.pool_mode!r} cannot be exported, only 'avg'")


def check_mask_head(mask_head: nn.Module) -> None:
    """Checks that masks are those of mmdet's `FCNMaskHead`, within a box each."""
    check_methods(mask_head, FCNMaskHead, '_predict_by_feat_single')


def detect_boxes(roi_head: nn.Module, maps: Sequence[Tensor], proposals: Detections, sizes: Tensor) -> Detections:
    """Returns the detections of the box head of a RoI head that `check_roi_head` accepts, as `kept_and_ranked`.

    The maps are those of the neck, the proposals boxes (B, P, 4), scores (B, P), 0 for an empty entry, and labels.
    """
    head, cfg = roi_head.bbox_head, roi_head.test_cfg
    boxes, objectness, _ = proposals
    batch_size, count = objectness.shape
    cls_score, deltas = (x.float() for x in head(roi_features(roi_head.bbox_roi_extractor, maps, boxes)))
    scores = cls_score.softmax(dim=-1)[:, :-1].reshape(batch_size, count, head.num_classes)
    scores = scores * (scores > cfg.score_thr) * (objectness > 0)[..., None]

    per_box = 1 if head.reg_class_agnostic else head.num_classes
    rois = boxes[:, :, None].expand(-1, -1, per_box, -1).reshape(-1, 4)
    decoded = head.bbox_coder.decode(rois, deltas.reshape(-1, 4))
    decoded = clip(decoded.reshape(batch_size, -1, 4), sizes).reshape(batch_size, count, per_box, 4)
    decoded = decoded.expand(-1, -1, head.num_classes, -1)

    # Each class of each image is a group of P candidates of its own.
    scores, decoded = scores.transpose(1, 2), decoded.transpose(1, 2)  # (B, C, P), (B, C, P, 4)
    threshold = nms_threshold(cfg, type(roi_head).__name__)
    keep = nms_keep(decoded.flatten(0, 1), scores.flatten(0, 1)[:, None], threshold, cfg.max_per_img)
    scores = scores * keep.reshape(scores.shape)
    labels = torch.arange(head.num_classes, device=scores.device)[:, None].expand(scores.shape)
    return ranked(decoded.flatten(1, 2), scores.flatten(1), labels.flatten(1), cfg.max_per_img)


def detect_masks(roi_head: nn.Module, maps: Sequence[Tensor], boxes: Tensor, labels: Tensor) -> Tensor:
    """Returns the probability of the detected class within each box, (B, N, h, w), h = w = 28 in Mask R-CNN.

    The head is one that `check_roi_head` accepts, boxes are (B, N, 4), labels (B, N), -1 for an empty entry.
    """
    features = roi_features(roi_head.mask_roi_extractor, maps, boxes)
    logits = of_labels(roi_head.mask_head(features).float(), labels.reshape(-1))
    return logits.sigmoid().reshape(*labels.shape, *logits.shape[1:])


def of_labels(masks: Tensor, labels: Tensor) -> Tensor:
    """Picks the masks (K, C, h, w) of the labels (K,), -1 for none: (K, h, w). C = 1 is one for every class."""
    if masks.shape[1] == 1:
        return masks[:, 0]
    index = labels.clamp(min=0).reshape(-1, 1, 1, 1).expand(-1, 1, *masks.shape[2:])
    return masks.gather(1, index)[:, 0]


def roi_features(extractor: SingleRoIExtractor, maps: Sequence[Tensor], boxes: Tensor) -> Tensor:
    """Returns the features of boxes (B, P, 4): (B * P, channels, h, w)."""
    batch_size, count = boxes.shape[:2]
    images = torch.arange(batch_size, device=boxes.device, dtype=boxes.dtype)
    images = images[:, None, None].expand(-1, count, 1)
    maps = maps[: extractor.num_inputs]
    return aligned_features(extractor, maps, torch.cat([images, boxes], dim=-1).reshape(-1, 5))


def aligned_features(
    extractor: SingleRoIExtractor, maps: Sequence[Tensor], rois: Tensor, scale: float | None = None
) -> Tensor:
    """Returns the features of RoIs (K, 5), each from the level that fits its size: (K, channels, h, w).

    Every level aligns every box. Boxes that belong to another level shrink to a point there, which costs next to
    nothing, and their features are masked. `scale` enlarges the boxes after their level is chosen.
    """
    levels = extractor.map_roi_levels(rois, len(maps))
    if scale is not None:
        rois = extractor.roi_rescale(rois, scale)
    features = 0
    for i, (x, layer) in enumerate(zip(maps, extractor.roi_layers, strict=True)):
        here = (levels == i)[:, None]
        aligned = torchvision.ops.roi_align(
            x.float(),
            torch.cat([rois[:, :1], rois[:, 1:] * here], dim=1),
            layer.output_size,
            layer.spatial_scale,
            layer.sampling_ratio,
            layer.aligned,
        )
        features = features + torch.where(here[..., None, None], aligned, 0)
    return features.to(maps[0].dtype)
