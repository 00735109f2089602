"""Stitched images of the benchmark of tiles, and their annotations."""

import runpy
from pathlib import Path

import numpy as np
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

BENCHMARKS = Path(__file__).resolve().parents[2] / 'benchmarks'


def test_stitched_images_and_their_annotations_match(monkeypatch):
    """Each object is a rectangle of its own level, so that its place in the stitched image can be read off."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    tiles = runpy.run_path(str(BENCHMARKS / 'tiles.py'))
    images, annotations = [], []
    for i in range(5):  # the fifth does not fill a stitched image
        image = np.zeros((20, 30, 3), np.uint8)
        image[2 + i : 9, 4 : 11 + i] = 10 + i
        images.append(image)
        polygon = [4, 2 + i, 11 + i, 2 + i, 11 + i, 9, 4, 9]
        annotations.append(
            dict(id=i + 1, image_id=i, category_id=1, iscrowd=0, area=1, segmentation=[polygon])
            | dict(bbox=[4, 2 + i, 7 + i, 7 - i])
        )
    small = COCO()
    small.imgs = {i: dict(id=i, height=20, width=30) for i in range(5)}
    small.imgToAnns = {i: [annotation] for i, annotation in enumerate(annotations)}
    (stitched,) = tiles['stitch'](images, 2)
    assert stitched.shape == (40, 60, 3)
    moved = tiles['stitched_annotations'](small, [0, 1, 2, 3], (20, 30), 2)
    for i, annotation in enumerate(moved):
        mask = stitched[..., 0] == 10 + i
        assert annotation['image_id'] == 1
        y, x = np.nonzero(mask)
        np.testing.assert_array_equal(annotation['bbox'], [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1])
        np.testing.assert_array_equal(coco_masks.decode(annotation['segmentation']), mask)
