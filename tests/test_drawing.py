"""Drawn boxes: names in other scripts, texts that cover no others."""

import numpy as np

from tokennorm.drawing import draw, printable


def test_names_in_other_scripts_leave_a_mark_on_drawings():
    assert [printable(name) for name in ('café', 'Łódź', '猫犬')] == ['cafe', '?odz', '??']


def test_texts_cover_no_others():
    image, boxes, colors = np.zeros((120, 200, 3), np.uint8), np.tile([20, 40, 180, 110], (3, 1)), [(0, 0, 255)] * 3
    drawn = draw(image, boxes, ['worst', 'second', 'best'], colors)
    np.testing.assert_array_equal(drawn, draw(image, boxes, ['', 'second', 'best'], colors))
    assert (drawn != draw(image, boxes, ['', '', 'best'], colors)).any((1, 2)).nonzero()[0].min() > 40  # in the box
    assert (drawn != draw(image, boxes, ['', 'second', ''], colors)).any()
