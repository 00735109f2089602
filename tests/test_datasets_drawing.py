"""Drawings of annotations that do not fit their image."""

import numpy as np
import pytest

from tokennorm.datasets.drawing import draw_annotations


@pytest.mark.parametrize(('height', 'width', 'drawn'), [(2, 3000, (1, 480)), (3000, 2, (480, 1)), (1, 1, (480, 480))])
def test_thin_images_keep_a_pixel(height, width, drawn):
    image = np.full((height, width, 3), 99, np.uint8)
    assert draw_annotations(image, [], {1: 'a'}, {}).shape == (*drawn, 3)


@pytest.mark.parametrize('far', [1e9, 1e12, 500.0])
def test_boxes_far_outside_are_drawn_where_they_are_inside(far):
    image = np.zeros((48, 48, 3), np.uint8)
    box = dict(bbox=[24, 12, far, far], category_id=1)
    drawn = draw_annotations(image, [box], {1: 'a'}, {1: (255, 0, 0)}, long_side=96)
    columns, rows = (np.flatnonzero(drawn.any(2).any(axis)).min() for axis in (0, 1))
    assert (columns, rows) == (48, 24)
    assert not drawn[30:, 60:].any(), 'its other sides are outside'
