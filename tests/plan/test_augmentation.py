"""`--augment strong` replaces what is between loading and packing."""

import pytest
from mmengine.config import Config

from tokennorm.base.messages import UserError
from tokennorm.plan.augmentation import augment_strongly

LOADING = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True)]


def config(loading=LOADING, **dataset):
    pipeline = [*loading, dict(type='Resize', scale=(333, 200)), dict(type='PackDetInputs')]
    test = dict(pipeline=[dict(type='Resize', scale=(333, 200), keep_ratio=True)])
    dataset = dict(type='CocoDataset', pipeline=pipeline) | dataset
    return Config(dict(train_dataloader=dict(dataset=dataset), test_dataloader=dict(dataset=test)))


def test_boxes_get_a_mosaic_of_the_test_size():
    cfg = config()
    assert 'Mosaic' in augment_strongly(cfg)
    dataset = cfg.train_dataloader.dataset
    assert [step.type for step in dataset.pipeline] == [
        *('Mosaic', 'RandomAffine', 'MixUp', 'RandomFlip', 'FilterAnnotations', 'PackDetInputs')
    ]
    mosaic, affine = dataset.pipeline[:2]
    assert (mosaic.img_scale, affine.border) == ((333, 200), (-167, -100))  # half of each side is cut off again
    assert dataset.dataset.pipeline == LOADING
    assert dataset.dataset.filter_cfg.filter_empty_gt


def test_masks_are_cropped_from_jittered_images():
    cfg = config([LOADING[0], dict(LOADING[1], with_mask=True)])
    assert 'crop' in augment_strongly(cfg)
    steps = {step.type: step for step in cfg.train_dataloader.dataset.pipeline}
    assert steps['RandomResize'].ratio_range == (0.1, 2.0)
    assert steps['RandomCrop'].crop_size == (333, 333)
    assert 'Mosaic' not in steps


@pytest.mark.parametrize(
    ('cfg', 'problem'),
    [
        (config(dataset=dict(type='CocoDataset')), 'is inside a CocoDataset'),
        (config(LOADING[:1]), 'does not load, resize and pack'),
    ],
)
def test_other_pipelines_stay(cfg, problem):
    before = cfg.to_dict()
    with pytest.raises(UserError, match=problem):
        augment_strongly(cfg)
    assert cfg.to_dict() == before
