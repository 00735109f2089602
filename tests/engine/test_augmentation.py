"""What training does to images that the classes do not allow is said."""

import pytest
from mmengine.config import Config

from tokennorm.engine.augmentation import describe_flips


@pytest.mark.parametrize(
    ('classes', 'change', 'named'),
    [
        (('Left hand', 'Right hand', 'ball'), {}, 'Left hand and Right hand'),
        (('turn_left', 'turn_right', 'left', 'right'), {}, 'turn_left and turn_right, left and right'),
        (('arm-L', 'arm-R', 'ball', 'bar'), {}, 'arm-L and arm-R'),
        (('east', 'West', 'clockwise', 'counterclockwise'), {}, 'east and West, counterclockwise and clockwise'),
        (tuple('bdpq1234'), {}, 'characters with their mirror images (b, d, p, q and 4 more)'),
        (tuple('0123456789'), {}, 'characters with their mirror images (0, 1, 2, 3 and 6 more)'),
        (('0', '1', '2', '猫', '犬', '鳥'), {}, None),
        ('classes.txt', {}, None),
        (('left', 'ball', 'wall', 'warr', 'x', 'y'), {}, None),
        (('left', 'right'), {'train_dataloader.dataset.pipeline.1.prob': 0}, None),
    ],
)
def test_classes_that_mirrored_images_exchange(classes, change, named):
    pipeline = [dict(type='LoadImageFromFile'), dict(type='mmdet.RandomFlip', prob=0.5)]
    dataset = dict(type='CocoDataset', metainfo=dict(classes=classes), pipeline=pipeline)
    cfg = Config(dict(train_dataloader=dict(dataset=dataset)))
    cfg.merge_from_dict(change)
    said = f'Training mirrors images, which exchanges {named}. To keep them apart: --cfg-options '
    assert describe_flips(cfg) == ([said + 'train_dataloader.dataset.pipeline.1.prob=0'] if named else [])
