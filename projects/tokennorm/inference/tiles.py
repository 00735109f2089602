"""Detection on overlapping tiles of a large image, for objects that are small in it.

Akyon et al., "Slicing Aided Hyper Inference", 2022, with one difference: only detections of different tiles are merged,
since the detector has already suppressed duplicates within a tile.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mmdet.apis import DetInferencer
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from pycocotools import mask as run_lengths

_SAME_OBJECT = 0.5  # overlap, as a fraction of the smaller of two detections, above which they are one object


@dataclass
class _Found:
    """A detection in pixels of the whole image; `tiles` are the numbers of those that have found it."""

    box: np.ndarray
    score: float
    label: int
    tiles: set[int]
    mask: dict[str, Any] | None  # run lengths


def tile_starts(size: int, tile: int, overlap: float) -> list[int]:
    """Returns where the tiles of an axis start. They are spread evenly and overlap by at least the given fraction."""
    if size <= tile:
        return [0]
    count = -(-(size - tile) // max(int(tile * (1 - overlap)), 1)) + 1
    return [round(i * (size - tile) / (count - 1)) for i in range(count)]


def detect_in_tiles(
    inferencer: DetInferencer, image: np.ndarray, tile: int, overlap: float = 0.2, batch_size: int = 1
) -> DetDataSample:
    """Detects objects on each tile of an image and merges those that several tiles have found, best first."""
    height, width = image.shape[:2]
    corners = [(y, x) for y in tile_starts(height, tile, overlap) for x in tile_starts(width, tile, overlap)]
    tiles = [np.ascontiguousarray(image[y : y + tile, x : x + tile]) for y, x in corners]
    samples = inferencer(tiles, batch_size, return_datasamples=True)['predictions']
    found = []
    for number, ((y, x), sample) in enumerate(zip(corners, samples, strict=True)):
        instances = sample.pred_instances.cpu()
        boxes = instances.bboxes.numpy() + np.array([x, y, x, y], dtype=np.float32)
        scores, labels = instances.scores.tolist(), instances.labels.tolist()
        for i, (box, score, label) in enumerate(zip(boxes, scores, labels, strict=True)):
            mask = None
            if 'masks' in instances:
                whole = np.zeros((height, width), np.uint8, order='F')
                whole[y : y + tile, x : x + tile] = instances.masks[i]
                mask = run_lengths.encode(whole)
            found.append(_Found(box, score, label, {number}, mask))
    return _as_sample(merge_tiles(found), height, width, any('masks' in s.pred_instances for s in samples))


def merge_tiles(found: list[_Found]) -> list[_Found]:
    """Returns detections with those of different tiles merged that are the same object, highest scores first.

    Each takes up the detections with lower scores of the same class that overlap it by more than half of the smaller
    one: by their masks if there are any, else by their boxes. The result spans all of them.
    """
    kept: list[_Found] = []
    for one in sorted(found, key=lambda one: -one.score):
        for other in kept:
            if other.label == one.label and not other.tiles & one.tiles and _overlap(other, one) > _SAME_OBJECT:
                _unite(other, one)
                break
        else:
            kept.append(one)
    return kept


def _overlap(a: _Found, b: _Found) -> float:
    """Intersection over the smaller of two detections."""
    left, top = np.maximum(a.box[:2], b.box[:2])
    right, bottom = np.minimum(a.box[2:], b.box[2:])
    if right <= left or bottom <= top:
        return 0.0
    if a.mask is None or b.mask is None:
        smaller = min(np.prod(a.box[2:] - a.box[:2]), np.prod(b.box[2:] - b.box[:2]))
        return float((right - left) * (bottom - top) / smaller)
    common = run_lengths.area(run_lengths.merge([a.mask, b.mask], intersect=True))
    return float(common / max(min(run_lengths.area(a.mask), run_lengths.area(b.mask)), 1))


def _unite(kept: _Found, other: _Found) -> None:
    """Extends a detection by another one of the same object."""
    kept.box = np.concatenate([np.minimum(kept.box[:2], other.box[:2]), np.maximum(kept.box[2:], other.box[2:])])
    if kept.mask is not None and other.mask is not None:
        kept.mask = run_lengths.merge([kept.mask, other.mask])
    kept.tiles |= other.tiles


def _as_sample(found: list[_Found], height: int, width: int, with_masks: bool) -> DetDataSample:
    instances = InstanceData(
        bboxes=torch.from_numpy(np.array([one.box for one in found], dtype=np.float32).reshape(-1, 4)),
        scores=torch.tensor([one.score for one in found], dtype=torch.float32),
        labels=torch.tensor([one.label for one in found], dtype=torch.long),
    )
    if with_masks:
        masks = [run_lengths.decode(one.mask) for one in found]
        instances.masks = torch.from_numpy(np.array(masks, dtype=bool).reshape(-1, height, width))
    return DetDataSample(pred_instances=instances, metainfo=dict(img_shape=(height, width), ori_shape=(height, width)))
