"""Objects that several tiles have found are one object, with the box and mask of the whole."""

from itertools import pairwise

import numpy as np
import pytest

from tokennorm.base.messages import UserError
from tokennorm.inference.runtime import BaseDetector
from tokennorm.inference.tiles import _Object, detect_in_tiles, merge_tiles, tile_corners, tile_starts


class FindValues(BaseDetector):
    """A detector of pixels: each value is an object, its class value // 100, its score higher the more is visible."""

    classes = ('low', 'high')
    with_masks = True

    def detect(self, images, batch_size=1):
        return [self._detect(image[..., 0]) for image in images]

    def _detect(self, image):
        values = [value for value in np.unique(image) if value]
        masks = np.array([image == value for value in values]).reshape(-1, *image.shape)
        boxes = [(x.min(), y.min(), x.max() + 1, y.max() + 1) for y, x in map(np.nonzero, masks)]
        return self.detections(
            np.array(boxes, np.float32).reshape(-1, 4),
            np.array([mask.sum() / 1000 for mask in masks], np.float32),
            np.array([int(value) // 100 for value in values], np.int64),
            masks if self.with_masks else None,
        )


class FindTwice(FindValues):
    """Each object, and its left three quarters as a second object of the class: both in the same tile."""

    with_masks = False

    def _detect(self, image):
        found = super()._detect(image)
        smaller = found.boxes.copy()
        smaller[:, 2] -= 0.25 * (smaller[:, 2] - smaller[:, 0])
        columns = (np.concatenate(pair) for pair in ((found.boxes, smaller), [found.scores] * 2, [found.labels] * 2))
        return self.detections(*columns, None)


@pytest.mark.parametrize(
    ('size', 'tile', 'overlap'), [(64, 100, 0.2), (100, 40, 0.25), (101, 40, 0.0), (1000, 300, 0.5)]
)
def test_tiles_cover_an_axis_with_the_overlap(size, tile, overlap):
    starts = tile_starts(size, tile, overlap)
    assert starts[0] == 0
    assert starts[-1] == max(size - tile, 0)
    assert all(b - a <= tile * (1 - overlap) + 1 for a, b in pairwise(starts))


def test_absurd_tiles_are_refused():
    assert len(tile_corners(1080, 1920, 512, 0.2)) == 3 * 5
    assert tile_corners(100, 100, 200, 0.99) == [(0, 0)]
    with pytest.raises(
        UserError, match=r'an image of 128 x 128 pixels has 16,384 tiles of 1 x 1 with an overlap of 0.2'
    ):
        tile_corners(128, 128, 1, 0.2)
    with pytest.raises(UserError, match=r'an overlap of at most 0\.95'):
        tile_corners(128, 128, 64, 0.999)


@pytest.mark.parametrize('with_masks', [True, False])
def test_objects_across_tiles_are_whole(with_masks):
    image = np.zeros((100, 130, 3), np.uint8)
    image[30:50, 25:60] = 10  # across the border between tiles
    image[30:50, 60:70] = 20  # its neighbor of the same class
    image[70:90, 90:125] = 110
    image[80:90, 90:100] = 0  # not a rectangle
    image[5:9, 5:9] = 120
    detector = FindValues()
    detector.with_masks = with_masks
    (expected,) = detector.detect([image])
    actual = detect_in_tiles(detector, image, 48, 0.4)
    order, expected_order = (np.lexsort(found.boxes.T) for found in (actual, expected))
    np.testing.assert_array_equal(actual.boxes[order], expected.boxes[expected_order])
    np.testing.assert_array_equal(actual.labels[order], expected.labels[expected_order])
    assert (np.diff(actual.scores) <= 0).all()
    if with_masks:
        np.testing.assert_array_equal(actual.masks[order], expected.masks[expected_order])
    else:
        assert actual.masks is None


@pytest.mark.parametrize('with_masks', [True, False])
def test_parts_are_one_object_from_an_overlap_of_half(with_masks):
    """Tiles start at 0, 27, 55. Parts 10 to 48 and 27 to 54 share 21 of 27, 0 to 48 and 27 to 75 21 of 48 columns."""
    detector = FindValues()
    detector.with_masks = with_masks
    image = np.zeros((40, 130, 3), np.uint8)
    image[4:24, 10:54] = 10
    assert detect_in_tiles(detector, image, 48, 0.4).boxes.tolist() == [[10, 4, 54, 24]]
    image[4:24, 0:75] = 10
    assert len(detect_in_tiles(detector, image, 48, 0.4)) == 2


def test_detections_of_one_tile_are_not_merged():
    """Two objects of a class that overlap by more than half, in one tile: the detector has kept both."""
    image = np.zeros((100, 130, 3), np.uint8)
    image[4:24, 4:40] = 10
    actual = detect_in_tiles(FindTwice(), image, 48, 0.0)
    assert actual.boxes.tolist() == [[4, 4, 40, 24], [4, 4, 31, 24]]
    assert actual.masks is None


def test_objects_of_two_classes_are_not_merged():
    box = np.array([4, 4, 40, 24], np.float32)
    assert len(merge_tiles([_Object(box, 0.9, 0, {0}, []), _Object(box, 0.8, 1, {1}, [])])) == 2


def test_the_area_of_a_merged_mask_counts_each_pixel_once():
    parts = [np.ones((20, 40), bool), np.ones((20, 30), bool)]  # columns 0 to 40 and 20 to 50
    objects = [
        _Object(np.array([x, 0, x + part.shape[1], 20], np.float32), score, 0, {x}, [(0, x, part)], part.sum())
        for x, score, part in zip((0, 20), (0.9, 0.8), parts, strict=True)
    ]
    (merged,) = merge_tiles(objects)
    assert merged.area == merged.window(0, 0, 20, 60).sum() == 20 * 50


def test_image_without_objects():
    found = detect_in_tiles(FindValues(), np.zeros((100, 130, 3), np.uint8), 48)
    assert (found.boxes.shape, found.masks.shape, found.class_names) == ((0, 4), (0, 100, 130), [])
