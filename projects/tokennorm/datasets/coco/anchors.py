"""Compares the sizes of annotated objects with the anchors of a detector."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mmcv
import numpy as np
from mmdet.registry import TASK_UTILS
from mmdet.utils import register_all_modules
from mmengine.config import Config

MATCH_IOU = 0.5


@dataclass(frozen=True)
class AnchorFit:
    """Sizes of objects and anchors at the image size of testing; a size is the square root of width times height.

    Args:
        object_sizes: (N,) pixels.
        anchor_sizes: Anchor sizes per feature level in pixels, by stride; empty for a detector without anchors.
        best_iou: (N,) IoU of each object with its best anchor; None without anchors.
    """

    object_sizes: np.ndarray
    anchor_sizes: dict[int, list[float]]
    best_iou: np.ndarray | None

    @property
    def unmatched(self) -> float | None:
        """Fraction of objects whose IoU with every anchor is below 0.5; None without anchors or objects."""
        if self.best_iou is None or not len(self.best_iou):
            return None
        return float((self.best_iou < MATCH_IOU).mean())


def fit_anchors(cfg: Config, ground_truth: dict[str, Any]) -> AnchorFit:
    """Returns how the anchors of a config fit the objects of an annotation file, at the image size of testing.

    Args:
        cfg: Config of a detector.
        ground_truth: Content of a COCO annotation file. Crowds are left out.
    """
    scales = {image['id']: input_scale(cfg, image['width'], image['height']) for image in ground_truth['images']}
    objects = [a for a in ground_truth.get('annotations', []) if not a.get('iscrowd')]
    boxes = np.array([a['bbox'] for a in objects], float).reshape(-1, 4)
    boxes = boxes * np.tile(np.array([scales[a['image_id']] for a in objects]).reshape(-1, 2), 2)
    sizes = np.sqrt(boxes[:, 2] * boxes[:, 3])
    levels = base_anchors(cfg)
    if not levels:
        return AnchorFit(sizes, {}, None)
    anchor_sizes = {
        stride: [round(float(v), 1) for v in np.sqrt(np.prod(a[:, 2:] - a[:, :2], axis=1))]
        for stride, a in levels.items()
    }
    return AnchorFit(sizes, anchor_sizes, best_iou(boxes, levels))


def base_anchors(cfg: Config) -> dict[int, np.ndarray]:
    """Returns the anchors (A, 4) of one position as x1, y1, x2, y2 around its origin, by stride; {} without anchors."""
    for head in ('rpn_head', 'bbox_head'):
        generator = (cfg.model.get(head) or {}).get('anchor_generator')
        if generator is not None:
            register_all_modules(init_default_scope=False)
            generator = TASK_UTILS.build(dict(generator))
            pairs = zip(generator.strides, generator.base_anchors, strict=True)
            return {int(stride[0]): anchors.double().numpy() for stride, anchors in pairs}
    return {}


def best_iou(boxes: np.ndarray, levels: Mapping[int, np.ndarray]) -> np.ndarray:
    """Returns the IoU (N,) of each box with the best anchor of all levels, on grids without borders.

    Anchors repeat every `stride` pixels, and of one shape the anchor nearest to the box has the largest IoU.

    Args:
        boxes: (N, 4) x, y, width, height in pixels of the network's input.
        levels: As `base_anchors` returns them.
    """
    best = np.zeros(len(boxes))
    centers = boxes[:, :2] + boxes[:, 2:] / 2
    for stride, anchors in levels.items():
        for anchor in anchors:
            size, offset = anchor[2:] - anchor[:2], (anchor[2:] + anchor[:2]) / 2
            distance = centers - offset
            distance = np.abs(distance - stride * np.round(distance / stride))
            overlap = np.minimum(np.minimum((size + boxes[:, 2:]) / 2 - distance, size), boxes[:, 2:]).clip(0)
            shared = overlap.prod(axis=1)
            best = np.maximum(best, shared / (size.prod() + boxes[:, 2:].prod(axis=1) - shared))
    return best


def input_scale(cfg: Config, width: int, height: int) -> tuple[float, float]:
    """Returns the factors by which the test pipeline of a config resizes the width and the height of an image."""
    for step in find_pipeline(cfg, 'test') or find_pipeline(cfg, 'val'):
        kind = str(step['type']).rpartition('.')[2]
        if kind in ('Resize', 'FixScaleResize') and step.get('scale') is not None:
            scale = step['scale']
            if step.get('keep_ratio', False):
                return (mmcv.rescale_size((width, height), scale, return_scale=True)[1],) * 2
            scale = scale if isinstance(scale, list | tuple) else (scale, scale)
            return scale[0] / width, scale[1] / height
    return 1.0, 1.0


def find_pipeline(cfg: Config, split: str) -> list[dict[str, Any]]:
    """Returns the pipeline of the innermost dataset of a split."""
    dataset = (cfg.get(f'{split}_dataloader') or {}).get('dataset') or {}
    while 'pipeline' not in dataset and 'dataset' in dataset:
        dataset = dataset['dataset']
    return list(dataset.get('pipeline') or [])
