"""The dataset of COCO files reads the pixels that prediction reads."""

import numpy as np
from mmengine.registry import init_default_scope
from PIL import Image

from tokennorm.datasets.coco.dataset import CocoDataset
from tokennorm.images.pixels import read_image

DEPTH = np.full((16, 24), 990, np.uint16)


DEPTH[:8, :8] = 4000  # of 4095


def test_training_reads_the_same_pixels(tmp_path):
    init_default_scope('mmdet')
    path = tmp_path / 'a.png'
    Image.fromarray(DEPTH).save(path)
    dataset = CocoDataset(lazy_init=True, pipeline=[dict(type='LoadImageFromFile')])
    found = dataset.pipeline(dict(img_path=str(path)))
    np.testing.assert_array_equal(found['img'], read_image(path))
    assert (found['img_shape'], found['ori_shape']) == ((16, 24), (16, 24))
