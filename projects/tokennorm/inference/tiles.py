"""Detection on overlapping tiles of a large image, for objects that are small in it.

Akyon et al., "Slicing Aided Hyper Inference", 2022, with one difference: only detections of different tiles are merged,
since the detector has already suppressed duplicates within a tile.
"""

from dataclasses import dataclass

import numpy as np
import torch
from mmdet.apis import DetInferencer
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

_SAME_OBJECT = 0.5  # overlap, as a fraction of the smaller of two detections, above which they are one object


@dataclass
class _Found:
    """A detection in pixels of the whole image; `mask` is a part of its mask, which begins at `corner` (x, y)."""

    box: np.ndarray
    score: float
    label: int
    tile: set[int]
    mask: np.ndarray | None = None
    corner: tuple[int, int] = (0, 0)


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
        found += _on_whole_image(sample.pred_instances.cpu(), number, y, x)
    return _as_sample(merge_tiles(found), height, width, any('masks' in s.pred_instances for s in samples))


def merge_tiles(found: list[_Found]) -> list[_Found]:
    """Returns detections with those of different tiles merged that are the same object, highest scores first.

    Each takes up the detections with lower scores of the same class that overlap it by more than half of the smaller
    one: by their masks if there are any, else by their boxes. The result spans all of them.
    """
    kept: list[_Found] = []
    for one in sorted(found, key=lambda one: -one.score):
        for other in kept:
            if other.label == one.label and not other.tile & one.tile and _overlap(other, one) > _SAME_OBJECT:
                _unite(other, one)
                break
        else:
            kept.append(one)
    return kept


def _on_whole_image(instances: InstanceData, tile: int, y: int, x: int) -> list[_Found]:
    found = []
    scores, labels = instances.scores.tolist(), instances.labels.tolist()
    for i, (box, score, label) in enumerate(zip(instances.bboxes.numpy(), scores, labels, strict=True)):
        one = _Found(box + np.array([x, y, x, y], dtype=np.float32), score, label, {tile})
        if 'masks' in instances:
            left, top, right, bottom = _pixels(box)
            one.mask = np.asarray(instances.masks[i][top:bottom, left:right])
            one.corner = (x + left, y + top)
        found.append(one)
    return found


def _pixels(box: np.ndarray) -> tuple[int, int, int, int]:
    """The pixels that a box touches, as the start and stop of slices (x1, y1, x2, y2)."""
    x1, y1 = np.floor(box[:2]).astype(int)
    x2, y2 = np.ceil(box[2:]).astype(int)
    return max(x1, 0), max(y1, 0), max(x2, 0), max(y2, 0)


def _overlap(a: _Found, b: _Found) -> float:
    """Intersection over the smaller of two detections."""
    left, top = np.maximum(a.box[:2], b.box[:2])
    right, bottom = np.minimum(a.box[2:], b.box[2:])
    if right <= left or bottom <= top:
        return 0.0
    if a.mask is None or b.mask is None:
        smaller = min(np.prod(a.box[2:] - a.box[:2]), np.prod(b.box[2:] - b.box[:2]))
        return float((right - left) * (bottom - top) / smaller)
    window = _pixels(np.array([left, top, right, bottom]))
    common = _mask_in(a, window) & _mask_in(b, window)
    return float(common.sum() / max(min(a.mask.sum(), b.mask.sum()), 1))


def _mask_in(one: _Found, window: tuple[int, int, int, int]) -> np.ndarray:
    """The mask of a detection in a window of the image, bool (y2 - y1, x2 - x1)."""
    x1, y1, x2, y2 = window
    place = np.zeros((y2 - y1, x2 - x1), dtype=bool)
    left, top = one.corner
    bottom, right = top + one.mask.shape[0], left + one.mask.shape[1]
    inner = slice(max(y1, top), min(y2, bottom)), slice(max(x1, left), min(x2, right))
    if inner[0].start < inner[0].stop and inner[1].start < inner[1].stop:
        place[inner[0].start - y1 : inner[0].stop - y1, inner[1].start - x1 : inner[1].stop - x1] = one.mask[
            inner[0].start - top : inner[0].stop - top, inner[1].start - left : inner[1].stop - left
        ]
    return place


def _unite(kept: _Found, other: _Found) -> None:
    """Extends a detection by another one of the same object."""
    box = np.concatenate([np.minimum(kept.box[:2], other.box[:2]), np.maximum(kept.box[2:], other.box[2:])])
    if kept.mask is not None and other.mask is not None:
        window = _pixels(box)
        kept.mask = _mask_in(kept, window) | _mask_in(other, window)
        kept.corner = window[:2]
    kept.box = box
    kept.tile |= other.tile


def _as_sample(found: list[_Found], height: int, width: int, with_masks: bool) -> DetDataSample:
    found = sorted(found, key=lambda one: -one.score)
    instances = InstanceData(
        bboxes=torch.from_numpy(np.array([one.box for one in found], dtype=np.float32).reshape(-1, 4)),
        scores=torch.tensor([one.score for one in found], dtype=torch.float32),
        labels=torch.tensor([one.label for one in found], dtype=torch.long),
    )
    if with_masks:
        whole = (0, 0, width, height)
        masks = [_mask_in(one, whole) for one in found]
        instances.masks = torch.from_numpy(np.array(masks, dtype=bool).reshape(-1, height, width))
    return DetDataSample(pred_instances=instances, metainfo=dict(img_shape=(height, width), ori_shape=(height, width)))
