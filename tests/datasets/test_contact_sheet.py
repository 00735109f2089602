"""Drawn annotations and contact sheets."""

import cv2
import numpy as np
import pytest
from pycocotools import mask as run_lengths

from tokennorm.datasets.coco.masks import draw_mask
from tokennorm.datasets.contact_sheet import contact_sheet, draw_annotations, palette, tile
from tokennorm.datasets.splits import CocoSplit

BOX = np.zeros((20, 30), bool)
BOX[5:15, 10:22] = True


@pytest.mark.parametrize('form', ['polygon', 'compressed', 'counts', 'two polygons'])
def test_a_mask_is_the_same_in_every_form(form):
    compressed = run_lengths.encode(np.asfortranarray(BOX, np.uint8))
    counts = np.diff(np.flatnonzero(np.diff(np.r_[2, BOX.T.reshape(-1), 2]))).tolist()
    segmentation = dict(
        polygon=[[10, 5, 22, 5, 22, 15, 10, 15]],
        compressed=compressed | dict(counts=compressed['counts'].decode()),
        counts=dict(size=[20, 30], counts=counts),
    ) | {'two polygons': [[10, 5, 16, 5, 16, 15, 10, 15], [16, 5, 22, 5, 22, 15, 16, 15]]}
    assert np.array_equal(draw_mask(segmentation[form], 20, 30), BOX)


@pytest.mark.parametrize('segmentation', [None, [], [[1, 2]], dict(size=[9, 9], counts=[81])])
def test_a_mask_that_cannot_be_read_is_left_out(segmentation):
    assert draw_mask(segmentation, 20, 30) is None


def test_tiles_are_white_around_smaller_images():
    sheet = tile([np.zeros((*size, 3), np.uint8) for size in ((4, 6), (8, 2), (1, 1))], 2, gap=2)
    expected = np.full((20, 16, 3), 255, np.uint8)
    expected[:4, :6] = expected[:8, 8:10] = expected[10, 0] = 0
    assert np.array_equal(sheet, expected)


def test_boxes_are_drawn_where_they_are_in_the_color_of_their_class():
    first, second = (color[::-1] for color in palette(2))  # BGR
    annotations = [
        dict(bbox=[8, 8, 16, 16], category_id=5),
        dict(bbox=[40, 30, 16, 24], category_id=9),
        dict(bbox=[2, 50, 8, 8], category_id=9, iscrowd=1),
    ]
    drawn = draw_annotations(np.zeros((60, 60, 3), np.uint8), annotations, {5: 'cat', 9: 'dog'})
    assert drawn.shape == (480 + 18, 480, 3)  # eight times as large, with room for a caption
    for (x, y), color in {(128, 192): first, (384, 432): second, (16, 432): (255, 255, 255)}.items():
        near = drawn[y - 3 : y + 4, x - 3 : x + 4].reshape(-1, 3)  # the bottom or a side of the box
        assert (np.abs(near.astype(int) - np.array(color)).max(1) < 30).any(), (x, y)
    assert not drawn[300:340, 100:200].any()


def test_a_sheet_has_images_of_the_whole_split(tmp_path):
    images = [dict(id=i, file_name=f'{i}.png', width=48, height=48) for i in range(9)]
    for image in images:
        cv2.imwrite(str(tmp_path / image['file_name']), np.full((48, 48, 3), 25 * image['id'], np.uint8))
    content = dict(images=images, annotations=[], categories=[dict(id=1, name='cat')])
    split = CocoSplit('val', tmp_path / 'val.json', tmp_path, content)
    sheet = contact_sheet(split, 5)
    assert sheet.shape == (2 * (480 + 18 + 6), 4 * (480 + 6), 3)
    places = [(240 + row * 504, 240 + column * 486) for row in range(2) for column in range(4)]
    assert [int(sheet[place][0]) for place in places] == [0, 50, 100, 150, 200, 255, 255, 255]
    (tmp_path / '4.png').write_bytes(b'')
    assert [int(contact_sheet(split, 5)[place][0]) for place in places[:4]] == [0, 50, 150, 200]
    with pytest.raises(ValueError, match=r'val: no image in .* can be drawn'):
        contact_sheet(CocoSplit('val', tmp_path, tmp_path / 'elsewhere', content), 5)
