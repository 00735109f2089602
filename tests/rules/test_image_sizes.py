"""Sizes of images with which detectors of mmdet cannot work: before training, with the number that works."""

import numpy as np
import pytest
import torch
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData

from tests.helpers.cases import slow
from tests.helpers.detectors import small_config
from tests.helpers.recipes import findings_of
from tokennorm.engine.rules import Built

SIZES = dict(train=(128, 128), val=(96, 160))


class Images:
    """Blank images of one size."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 2

    def __getitem__(self, index):
        masks = BitmapMasks(np.zeros((0, *self.size)), *self.size)
        sizes = dict(img_shape=self.size, ori_shape=self.size)
        sample = DetDataSample(metainfo=sizes, gt_instances=InstanceData(masks=masks))
        return dict(inputs=torch.zeros(3, *self.size, dtype=torch.uint8), data_samples=sample)


def findings(name, sizes=SIZES, data=None, **model):
    """The findings for a row of the table of detectors, whose test images have a short side of 128 pixels."""
    init_default_scope('mmdet')
    cfg = small_config(name)
    cfg.model.update(model)
    resize = dict(type='Resize', scale=(128, 128))
    cfg = dict(model=cfg.model, test_dataloader=dict(dataset=dict(pipeline=[resize])))
    data = data or {split: Images(size) for split, size in sizes.items()}
    built = Built(Config(cfg), model=MODELS.build(cfg['model']), data=data, loops=dict(train=1))
    mode, state = built.model.training, torch.get_rng_state()
    texts = [(one.where, one.text.rpartition('; ')[2]) for one in findings_of('unfit-size', built)]
    assert built.model.training == mode
    assert torch.equal(torch.get_rng_state(), state)
    return texts


def test_a_size_at_which_there_are_fewer_tokens_than_queries():
    found = findings('DINO', sizes=dict(train=(128, 128)), num_queries=600, test_cfg=dict(max_per_img=300))
    assert found == [('train', 'a short side of 192 works: --image-size 192')]


@pytest.mark.slow
def test_the_size_of_the_option_follows_the_ratio_to_test_images():
    found = findings('DINO', sizes=dict(val=(96, 160)), num_queries=900, test_cfg=dict(max_per_img=300))
    assert found == [('val', 'a short side of 160 works: --image-size 224')]
    assert not findings('DINO', num_queries=318)


def test_sides_whose_halves_do_not_meet():
    (one,) = findings('YOLOX', sizes=dict(val=(100, 100)), data_preprocessor=dict(pad_size_divisor=1))
    assert one == ('val', 'multiples of 32 work: model.data_preprocessor.pad_size_divisor=32')


@pytest.mark.parametrize(
    'name', ['RTMDet', 'Faster R-CNN', 'DETR', *map(slow, ('RetinaNet', 'TOOD', 'YOLOX', 'SSDlite', 'Mask2Former'))]
)
def test_images_that_a_detector_can_work_with(name):
    assert not findings(name)


@pytest.mark.parametrize('sample', [dict(img_path='a.png'), None, dict(inputs=[torch.zeros(3, 8, 8)])])
def test_samples_that_no_detector_gets(sample):
    assert not findings('RTMDet', data=dict(train=[sample]))
