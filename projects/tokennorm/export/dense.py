"""Decoding of one-stage heads and region proposals for a whole batch, with shapes that do not depend on the data.

Letters of the shapes: B images, P priors (anchors or points) of one level, C classes, K candidates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmdet.models.dense_heads import RPNHead
from mmdet.models.dense_heads.base_dense_head import BaseDenseHead
from torch import Tensor, nn

from tokennorm.base.messages import UserError
from tokennorm.export.nms import clip, kept_and_ranked, take

Detections = tuple[Tensor, Tensor, Tensor]


class UnsupportedError(UserError):
    """A part of a detector that cannot be exported."""


def nms_threshold(cfg: Mapping[str, Any], owner: str) -> float:
    """Returns the overlap of a `test_cfg` with plain non-maximum suppression."""
    nms = dict(cfg.get('nms') or {})
    unknown = set(nms) - {'type', 'iou_threshold', 'split_thr', 'max_num'}
    if nms.get('type') not in ('nms', None) or 'iou_threshold' not in nms or unknown or nms.get('max_num', -1) > 0:
        raise UnsupportedError(
            f"{owner}: test_cfg.nms={nms} cannot be exported; supported is dict(type='nms', iou_threshold=...)"
        )
    if cfg.get('max_per_img', 1) <= 0:
        raise UnsupportedError(
            f'{owner}: test_cfg.max_per_img={cfg["max_per_img"]} cannot be exported; set a number above 0'
        )
    return float(nms['iou_threshold'])


def check_methods(part: nn.Module, base: type[nn.Module], *methods: str) -> None:
    """Checks that a part of a detector has these methods from a class of mmdet or mmcv."""
    others = [name for name in methods if getattr(type(part), name, None) is not getattr(base, name)]
    if others or not isinstance(part, base):
        raise UnsupportedError(
            f'{type(part).__name__} cannot be exported: it computes its result in its own way; supported are '
            f'{base.__name__} and classes with its {(others or methods)[0]}'
        )


def check_dense_head(head: nn.Module) -> None:
    """Checks that a head decodes its outputs as mmdet's base class for dense heads does."""
    base = RPNHead if isinstance(head, RPNHead) else BaseDenseHead
    check_methods(head, base, 'predict_by_feat', '_predict_by_feat_single', '_bbox_post_process')
    if base is BaseDenseHead:
        check_min_bbox_size(head)
    check_decoding(head)
    nms_threshold(head.test_cfg, type(head).__name__)


def check_min_bbox_size(head: nn.Module) -> None:
    """Checks that a head removes boxes of no area only."""
    if head.test_cfg.get('min_bbox_size', -1) > 0:
        name = type(head).__name__
        raise UnsupportedError(f'{name}: test_cfg.min_bbox_size, in pixels of the original image, cannot be exported')


def check_decoding(head: nn.Module) -> None:
    """Checks that a loss does not have scores of its own, and that boxes are clipped to the image."""
    if getattr(head.loss_cls, 'custom_cls_channels', False) or not getattr(head.bbox_coder, 'clip_border', True):
        raise UnsupportedError(f'{type(head).__name__} with SeesawLoss or clip_border=False cannot be exported')


def decode_dense(head: nn.Module, maps: Sequence[Tensor], sizes: Tensor) -> Detections:
    """Returns the detections of a head that `check_dense_head` accepts, as its `predict` does; of an RPN the proposals.

    From feature maps (B, channels, h, w) and the heights and widths of the images, int (B, 2). The result is that of
    `kept_and_ranked`, boxes in pixels of the batch. The labels of an RPN are levels.
    """
    cfg = head.test_cfg
    is_rpn = isinstance(head, RPNHead)
    cls_scores, bbox_preds, *factors = ([x.float() for x in levels] for levels in head(maps))
    priors = head.prior_generator.grid_priors(
        [x.shape[-2:] for x in cls_scores], dtype=cls_scores[0].dtype, device=cls_scores[0].device
    )
    levels = []
    for level, (cls_score, bbox_pred, level_priors) in enumerate(zip(cls_scores, bbox_preds, priors, strict=True)):
        scores = _per_prior(cls_score, head.cls_out_channels)
        # Without the background.
        scores = scores.sigmoid() if head.use_sigmoid_cls else scores.softmax(dim=-1)[..., :-1]
        # An RPN has no threshold and one class; its non-maximum suppression keeps levels apart instead.
        scores, labels, index = _best(scores, 0.0 if is_rpn else cfg.get('score_thr', 0), cfg.get('nms_pre', -1))
        if factors:
            scores = scores * _per_prior(factors[0][level], 1)[..., 0].sigmoid().gather(1, index)
        labels = torch.full_like(labels, level) if is_rpn else labels
        deltas = take(_per_prior(bbox_pred, head.bbox_coder.encode_size), index)
        levels.append((level_priors[index], deltas, scores, labels))
    chosen, deltas, scores, labels = (torch.cat(parts, dim=1) for parts in zip(*levels, strict=True))
    boxes = head.bbox_coder.decode(chosen.flatten(0, 1), deltas.flatten(0, 1)).reshape(*scores.shape, 4)
    boxes = clip(boxes, sizes)
    smallest = cfg.get('min_bbox_size', -1)
    if smallest >= 0:
        sides = boxes[..., 2:] - boxes[..., :2]
        scores = scores * (sides > smallest).all(dim=-1)
    groups = len(levels) if is_rpn else head.num_classes
    return kept_and_ranked(boxes, scores, labels, groups, nms_threshold(cfg, type(head).__name__), cfg['max_per_img'])


def _per_prior(x: Tensor, channels: int) -> Tensor:
    """(B, A * channels, h, w), A priors per position -> (B, P, channels)."""
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, channels)


def _best(scores: Tensor, threshold: float, count: int) -> Detections:
    """The `count` highest scores (B, P, C) above a threshold, 0 where they are not, labels and priors, each (B, K).

    A `count` of 0 or less is all.
    """
    num_classes = scores.shape[-1]
    flat = scores.flatten(1)
    count = torch.sym_min(count, flat.shape[1]) if count > 0 else flat.shape[1]
    best, index = flat.topk(count)
    return best * (best > threshold), index % num_classes, index // num_classes
