"""Fit of a detector's anchors to the objects of a dataset at the image size of the config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mmdet.registry import TASK_UTILS
from mmengine.config import Config

from tokennorm.plan.image_size import test_scale as resize_scale
from tokennorm.registry import type_name

MATCH = 0.5  # IoU of an anchor that matches, as in RetinaNet
MOST_UNMATCHED = 0.05  # of the boxes, before a warning
_SCALES = (1, 1.5, 2, 3, 4, 6, 8)
_CANDIDATES = dict(  # values that are tried
    octave_base_scale=_SCALES, scales=(*([scale] for scale in _SCALES), [2, 4], [2, 8], [4, 8], [2, 4, 8])
)


@dataclass(frozen=True)
class AnchorFit:
    """Anchors compared with the boxes of one split."""

    sizes: np.ndarray  # (N,) sides of the boxes in the resized image, the root of their areas, in pixels
    unmatched: float  # fraction of boxes with no anchor of an IoU of at least 0.5
    key: str  # path of the config entry that sets the sides of the anchors
    value: Any  # its value
    # other values with the fraction that they leave unmatched, best first; empty where `value` is the best
    better: tuple[tuple[Any, float], ...]
    image_size: int  # short side that images are resized to, in pixels
    anchors: dict[int, list[float]]  # roots of the anchors' areas, in pixels, by the stride of their feature map

    @property
    def is_poor(self) -> bool:
        """Returns whether the anchors miss many boxes, and others miss fewer."""
        return self.unmatched > MOST_UNMATCHED and bool(self.better)

    def summary(self) -> str:
        """One line: the fraction of matched boxes, and the values that would match more."""
        text = (
            f'anchors match {1 - self.unmatched:.1%} of the boxes at IoU {MATCH}, in images with a short side of '
            f'{self.image_size} pixels ({self.key}={self.value})'
        )
        if not self.is_poor:
            return text
        offers = ', '.join(f'{self.key}={value} would match {1 - share:.1%}' for value, share in self.better[:3])
        return f'{text}; {offers}'


def anchor_fit(cfg: Config, content: Mapping[str, Any]) -> AnchorFit | None:
    """Compares a detector's anchors with the boxes of a COCO annotation file.

    None is for a detector without anchors of fixed sizes, a config that does not resize, or a file without boxes.
    """
    key, generator = _generator(cfg)
    scale = resize_scale(cfg)
    sizes = {image['id']: (image['width'], image['height']) for image in content['images']}
    objects = (a for a in content['annotations'] if not a.get('iscrowd') and a['image_id'] in sizes)
    boxes = [a for a in objects if min(a['bbox'][2:]) >= 1]  # mmdet trains on no others
    if generator is None or scale is None or not boxes:
        return None
    images = np.array([sizes[a['image_id']] for a in boxes], float)
    factors = np.minimum(max(scale) / images.max(1), min(scale) / images.min(1))[:, None]
    xywh = np.array([a['bbox'] for a in boxes], float) * factors
    images = images * factors
    share = unmatched(generator, xywh, images)
    name = _size_key(generator)
    others = [(value, unmatched({**generator, name: value}, xywh, images)) for value in _CANDIDATES.get(name, ())]
    better = sorted((other for other in others if other[1] < share), key=lambda other: other[1])
    sides = np.sqrt(xywh[:, 2] * xywh[:, 3])
    built = TASK_UTILS.build({'_scope_': 'mmdet', **generator})
    areas = [(anchors[:, 2:] - anchors[:, :2]).prod(1) for anchors in built.base_anchors]
    roots = {int(stride[0]): area.sqrt().tolist() for stride, area in zip(built.strides, areas, strict=True)}
    key, value = anchor_sizes(cfg) or (key, type_name(generator))
    return AnchorFit(sides, share, key, value, tuple(better), min(scale), roots)


def unmatched(generator: Mapping[str, Any], boxes: np.ndarray, images: np.ndarray) -> float:
    """Returns the fraction of boxes with no anchor of an IoU of at least 0.5.

    The IoU of a box with anchors of one shape is highest at the grid point nearest to its center. Boxes (N, 4) are
    left, top, width and height, images (N, 2) their widths and heights, all in pixels of the resized image.
    """
    built = TASK_UTILS.build({'_scope_': 'mmdet', **generator})
    best = np.zeros(len(boxes))
    centers = boxes[:, :2] + boxes[:, 2:] / 2
    for stride, anchors in zip(built.strides, built.base_anchors, strict=True):
        stride = np.array(stride, float)
        last = np.ceil(images / stride) - 1
        for left, top, right, bottom in anchors.tolist():
            size = np.array([right - left, bottom - top])
            middle = np.array([left + right, top + bottom]) / 2
            at = np.clip(np.round((centers - middle) / stride), 0, last) * stride + middle
            overlap = np.minimum(centers + boxes[:, 2:] / 2, at + size / 2) - np.maximum(boxes[:, :2], at - size / 2)
            both = np.clip(overlap, 0, None).prod(1)
            best = np.maximum(best, both / (boxes[:, 2:].prod(1) + size.prod() - both))
    return float((best < MATCH).mean())


def anchor_sizes(cfg: Config) -> tuple[str, Any] | None:
    """Returns the path of the config entry that sets the sides of the anchors, and its value; None without one."""
    path, generator = _generator(cfg)
    name = _size_key(generator or {})
    return (f'{path}.{name}', generator[name]) if generator and name else None


def _size_key(generator: Mapping[str, Any]) -> str | None:
    """The entry that sets the sizes; generators without one, such as SSD's and YOLO's, are only described."""
    return next((name for name in _CANDIDATES if generator.get(name)), None)


def _generator(cfg: Config) -> tuple[str, dict[str, Any] | None]:
    for head in ('rpn_head', 'bbox_head'):
        part = cfg.model.get(head)
        generator = part.get('anchor_generator') if isinstance(part, Mapping) else None
        if generator and type_name(generator).endswith('AnchorGenerator') and not generator.get('centers'):
            return f'model.{head}.anchor_generator', dict(generator)
    return '', None
