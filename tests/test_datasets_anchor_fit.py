"""Anchors compared with objects: against every anchor of the grid, and by hand."""

import numpy as np
import pytest
import torch
from mmdet.registry import TASK_UTILS
from mmdet.structures.bbox import bbox_overlaps
from mmengine.config import Config

from tokennorm.config.image_size import fitting_size, set_image_size, short_side, use_trained_size
from tokennorm.datasets.anchor_fit import anchor_fit, unmatched

RETINA = dict(
    type='AnchorGenerator',
    octave_base_scale=4,
    scales_per_octave=3,
    ratios=[0.5, 1.0, 2.0],
    strides=[8, 16, 32, 64, 128],
)
RPN = dict(type='AnchorGenerator', scales=[8], ratios=[0.5, 1.0, 2.0], strides=[4, 8, 16, 32, 64])


def config(generator=RETINA, scale=(1333, 800)):
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=scale, keep_ratio=True),
        dict(type='PackDetInputs'),
    ]
    choice = dict(type='RandomChoiceResize', scales=[(1333, 640), (1333, 800)], keep_ratio=True)
    train = [dict(type='LoadImageFromFile'), choice, dict(type='RandomCrop', crop_size=(400, 0.5))]
    return Config(
        dict(
            model=dict(bbox_head=dict(anchor_generator=generator)),
            train_dataloader=dict(dataset=dict(type='RepeatDataset', dataset=dict(pipeline=train))),
            val_dataloader=dict(dataset=dict(pipeline=pipeline)),
            test_dataloader=dict(dataset=dict(pipeline=pipeline)),
        )
    )


@pytest.mark.parametrize('generator', [RETINA, RPN], ids=['retinanet', 'rpn'])
def test_the_share_is_that_of_all_anchors_of_the_grid(generator):
    rng = np.random.default_rng(0)
    height, width, count = 192, 256, 300
    size = np.exp(rng.uniform(np.log(4), np.log(180), (count, 2)))
    corner = rng.uniform(0, 1, (count, 2)) * (np.array([width, height]) - np.minimum(size, [width, height]))
    boxes = np.hstack([corner, np.minimum(size, [width, height])])
    built = TASK_UTILS.build({'_scope_': 'mmdet', **generator})
    sizes = [(-(-height // s[1]), -(-width // s[0])) for s in built.strides]
    anchors = torch.cat(built.grid_priors(sizes, device='cpu')).double()
    corners = torch.from_numpy(np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]))
    expected = (bbox_overlaps(corners, anchors).amax(1) < 0.5).double().mean().item()
    assert 0.05 < expected < 0.95
    assert unmatched(generator, boxes, np.tile([width, height], (count, 1))) == pytest.approx(expected)


def content(sides, image=(1000, 800)):
    annotations = [
        dict(id=i, image_id=1, category_id=1, bbox=[64.0 - side / 2, 64.0 - side / 2, side, side], iscrowd=0)
        for i, side in enumerate(sides)
    ]
    crowd = dict(id=99, image_id=1, category_id=1, bbox=[0, 0, 900, 900], iscrowd=1)
    return dict(images=[dict(id=1, width=image[0], height=image[1])], annotations=[*annotations, crowd])


def test_small_objects_get_a_smaller_scale():
    fit = anchor_fit(config(), content([8, 8, 40, 100]))
    assert fit.sizes.tolist() == [8, 8, 40, 100]
    assert fit.unmatched == 0.5
    assert fit.key == 'model.bbox_head.anchor_generator.octave_base_scale'
    assert dict(fit.better)[1] == 0.0
    assert 'object sizes after resizing, in pixels: 8 to 91 for 90% of the objects, median 24' in str(fit)
    assert 'warning: anchors match 50.0% of the boxes at IoU 0.5, in' in str(fit)
    assert 'warning' not in str(anchor_fit(config(), content([32, 40, 100])))


def test_sizes_are_those_after_resizing():
    fit = anchor_fit(config(scale=(1333, 400)), content([8, 40]))
    assert fit.sizes.tolist() == [4, 20]
    assert anchor_fit(config(generator=None), content([8])) is None
    assert anchor_fit(config(), content([])) is None


def test_every_resize_follows_the_image_size():
    cfg = config()
    cfg.tta_pipeline = [dict(type='TestTimeAug', transforms=[[dict(type='Resize', scale=(2000, 1200))], []])]
    assert short_side(cfg) == 800
    set_image_size(cfg, 320)
    assert short_side(cfg) == 320
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (533, 320)
    train = cfg.train_dataloader.dataset.dataset.pipeline
    assert train[1].scales == [(533, 256), (533, 320)]
    assert train[2].crop_size == (160, 0.5)
    assert cfg.tta_pipeline[0].transforms[0][0].scale == (800, 480)
    use_trained_size(cfg, dict(classes=('a',)))
    assert short_side(cfg) == 320
    use_trained_size(cfg, dict(image_size=640))
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (1066, 640)


@pytest.mark.parametrize(('median', 'size'), [(256, 512), (60, 128), (400, None), (480, None), (2000, None)])
def test_small_images_are_enlarged_twofold_at_most(median, size):
    assert fitting_size(config(), median) == size
