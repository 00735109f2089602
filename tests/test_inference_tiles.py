"""Objects that several tiles have found are one object, with the box and mask of the whole."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from tokennorm.inference.tiles import detect_in_tiles, tile_starts


def find_values(images, batch_size, return_datasamples):
    """A detector of pixels: each value is an object, its class value // 100, its score higher the more is visible."""
    samples = []
    for image in images:
        values = [value for value in np.unique(image) if value]
        masks = np.array([image[..., 0] == value for value in values]).reshape(-1, *image.shape[:2])
        boxes = [(x.min(), y.min(), x.max() + 1, y.max() + 1) for y, x in map(np.nonzero, masks)]
        instances = InstanceData(
            bboxes=torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
            scores=torch.tensor([mask.sum() / 1000 for mask in masks], dtype=torch.float32),
            labels=torch.tensor([int(value) // 100 for value in values], dtype=torch.long),
            masks=torch.from_numpy(masks),
        )
        samples.append(DetDataSample(pred_instances=instances))
    return dict(predictions=samples)


@pytest.mark.parametrize(
    ('size', 'tile', 'overlap'), [(64, 100, 0.2), (100, 40, 0.25), (101, 40, 0.0), (1000, 300, 0.5)]
)
def test_tiles_cover_an_axis_with_the_overlap(size, tile, overlap):
    starts = tile_starts(size, tile, overlap)
    assert starts[0] == 0
    assert starts[-1] == max(size - tile, 0)
    assert all(b - a <= tile * (1 - overlap) + 1 for a, b in pairwise(starts))


def test_objects_across_tiles_are_whole():
    image = np.zeros((100, 130, 3), np.uint8)
    image[30:50, 25:60] = 10  # across the border between tiles
    image[30:50, 60:70] = 20  # its neighbor of the same class
    image[70:90, 90:125] = 110
    image[5:9, 5:9] = 120
    (expected,) = find_values([image], 1, True)['predictions']
    actual = detect_in_tiles(find_values, image, 48, 0.4).pred_instances
    expected = expected.pred_instances
    order = np.lexsort(actual.bboxes.numpy().T)
    expected_order = np.lexsort(expected.bboxes.numpy().T)
    np.testing.assert_array_equal(actual.bboxes.numpy()[order], expected.bboxes.numpy()[expected_order])
    np.testing.assert_array_equal(actual.labels.numpy()[order], expected.labels.numpy()[expected_order])
    np.testing.assert_array_equal(actual.masks.numpy()[order], expected.masks.numpy()[expected_order])
    assert (actual.scores.diff() <= 0).all()
