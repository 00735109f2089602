"""mmdet's `RandomCrop` takes (width, height): what training crops of landscape and portrait images keep."""

import numpy as np
import pytest
from mmdet.registry import TRANSFORMS
from mmengine.config import Config
from mmengine.registry import init_default_scope

from tokennorm.config.paths import config as config_path
from tokennorm.plan.augmentation import augment_strongly


def crop_of(pipeline, height, width):
    """The size (height, width) that the pipeline's `RandomCrop` leaves of an image."""
    init_default_scope('mmdet')
    (step,) = [step for step in pipeline if step['type'] == 'RandomCrop']
    results = dict(img=np.zeros((height, width, 3), np.uint8), img_shape=(height, width))
    return TRANSFORMS.build(step)(results)['img'].shape[:2]


@pytest.mark.parametrize(('height', 'width'), [(800, 1333), (1333, 800)])
def test_strong_augmentation_crops_enlarged_images_only(height, width):
    cfg = Config.fromfile(config_path('mask-rcnn_pvt-t_fpn_1x_coco'))
    augment_strongly(cfg)
    pipeline = cfg.train_dataloader.dataset.pipeline
    assert crop_of(pipeline, height, width) == (height, width)
    assert crop_of(pipeline, 2 * height, 2 * width) == (1333, 1333)


@pytest.mark.parametrize(('name', 'size'), [('retinanet_pvt-mini-dtn_fpn_bccd', (240, 320))])
def test_crop_of_landscape_data_is_landscape(name, size):
    pipeline = Config.fromfile(config_path(name)).train_dataloader.dataset.pipeline
    assert crop_of(pipeline, 300, 400) == size
    assert crop_of(pipeline, *size) == size
