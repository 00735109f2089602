"""Anchors compared with objects: against every anchor of the grid, and by hand."""

import numpy as np
import pytest
import torch
from mmdet.datasets.transforms import MixUp
from mmdet.registry import TASK_UTILS
from mmdet.structures.bbox import bbox_overlaps
from mmengine.config import Config

from tokennorm.config.image_size import fitting_size, set_image_size, short_side
from tokennorm.datasets.anchor_fit import anchor_fit, unmatched
from tokennorm.engine.data import choose_image_size
from tokennorm.plan import Plan
from tokennorm.plan.trained import use_trained_size

RETINA = dict(
    type='AnchorGenerator',
    octave_base_scale=4,
    scales_per_octave=3,
    ratios=[0.5, 1.0, 2.0],
    strides=[8, 16, 32, 64, 128],
)
SSD = dict(
    type='SSDAnchorGenerator',
    scale_major=False,
    input_size=300,
    basesize_ratio_range=(0.15, 0.9),
    strides=[8, 16, 32, 64, 100, 300],
    ratios=[[2], [2, 3], [2, 3], [2, 3], [2], [2]],
)
YOLO = dict(type='YOLOAnchorGenerator', base_sizes=[[(60, 45), (90, 90)], [(10, 13), (30, 23)]], strides=[32, 8])
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


@pytest.mark.parametrize('generator', [RETINA, RPN, SSD, YOLO], ids=['retinanet', 'rpn', 'ssd', 'yolo'])
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
    flat = dict(id=100, image_id=1, category_id=1, bbox=[0, 0, 0, 900], iscrowd=0)  # mmdet leaves it out
    return dict(images=[dict(id=1, width=image[0], height=image[1])], annotations=[*annotations, crowd, flat])


def test_small_objects_get_a_smaller_scale():
    fit = anchor_fit(config(), content([8, 8, 40, 100]))
    assert fit.sizes.tolist() == [8, 8, 40, 100]
    assert fit.unmatched == 0.5
    assert fit.key == 'model.bbox_head.anchor_generator.octave_base_scale'
    assert dict(fit.better)[1] == 0.0
    assert 'anchors match 50.0% of the boxes at IoU 0.5, in' in fit.summary()
    assert 'warning' not in anchor_fit(config(), content([32, 40, 100])).summary()


@pytest.mark.parametrize('generator', [SSD, YOLO], ids=['ssd', 'yolo'])
def test_anchors_that_have_no_scales_are_only_described(generator):
    fit = anchor_fit(config(generator), content([2, 2]))
    assert (fit.unmatched, fit.better, fit.is_poor) == (1, (), False)
    assert f'(model.bbox_head.anchor_generator={generator["type"]})' in fit.summary()


def test_sizes_are_those_after_resizing():
    fit = anchor_fit(config(scale=(1333, 400)), content([8, 40]))
    assert fit.sizes.tolist() == [4, 20]
    assert anchor_fit(config(generator=None), content([8])) is None
    assert anchor_fit(config(), content([])) is None


STEPS = [  # a transform, and its sizes after halving the image size
    (dict(type='Mosaic', img_scale=(640, 640), pad_val=114.0), dict(img_scale=(320, 320))),
    (dict(type='Mosaic'), dict(img_scale=(320, 320))),  # by its default
    (dict(type='CachedMosaic', max_cached_images=40), dict(img_scale=(320, 320))),
    (dict(type='mmdet.CachedMixUp', img_scale=[640, 640]), dict(img_scale=[320, 320])),
    (dict(type=MixUp, img_scale=(640, 640)), dict(img_scale=(320, 320))),
    (dict(type='RandomAffine', border=(-320, -320)), dict(border=(-160, -160))),
    (dict(type='Resize', scale=(float('inf'), 800)), dict(scale=(float('inf'), 400))),
    (dict(type='RandomResize', scale=[(2000, 800), (1000, 400)]), dict(scale=[(1000, 400), (500, 200)])),
    (dict(type='ResizeShortestEdge', scale=800, max_size=1333), dict(scale=400, max_size=666)),
    (dict(type='FixShapeResize', width=1024, height=640), dict(width=512, height=320)),
    (dict(type='Pad', size_divisor=32, pad_val=dict(img=(114, 114, 114))), dict()),
    (dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600)), dict(crop_size=(192, 300))),
    (dict(type='RandomCrop', crop_type='relative', crop_size=(0.5, 1)), dict()),
    (dict(type='RandomCenterCropPad', crop_size=(512, 512)), dict(crop_size=(256, 256), border=64)),
    (dict(type='CutOut', n_holes=8, cutout_shape=[(8, 8), (32, 16)]), dict(cutout_shape=[(4, 4), (16, 8)])),
    (dict(type='RandomShift'), dict(max_shift_px=16)),
    (dict(type='CopyPaste'), dict(bbox_occluded_thr=5, mask_occluded_thr=75)),  # pixels of a side and of an area
    (dict(type='Rotate', level=10, img_border_value=128), dict()),
    (dict(type='BatchFixedSizePad', size=(1024, 1024)), dict(size=(512, 512))),
    (dict(type='BatchSyncRandomResize', random_size_range=(480, 800)), dict(random_size_range=(240, 400))),
    (dict(type='BatchSyncRandomResize', random_size_range=(40, 800)), dict(random_size_range=(32, 400))),
]


@pytest.mark.parametrize('place', ['train', 'hook', 'batch', 'tta'])
@pytest.mark.parametrize(('step', 'sizes'), STEPS)
def test_sizes_are_scaled_by_their_arguments(step, sizes, place):
    cfg = config()
    cfg.default_scope = 'mmdet'
    parent = dict(
        train=cfg.train_dataloader.dataset.dataset.pipeline,
        tta=[dict(type='TestTimeAug', transforms=[[]])],
        hook=[dict(type='PipelineSwitchHook', switch_pipeline=[])],
        batch=[],
    )[place]
    inner = dict(tta=lambda: parent[0]['transforms'][0], hook=lambda: parent[0]['switch_pipeline'])
    (inner[place]() if place in inner else parent).append(dict(step))
    if place != 'train':
        key = dict(tta='tta_pipeline', hook='custom_hooks').get(place)
        if key:
            cfg[key] = parent
        else:
            cfg.model.data_preprocessor = dict(type='DetDataPreprocessor', batch_augments=parent, pad_size_divisor=32)
    assert set_image_size(cfg, 400) == []
    found = dict(
        train=lambda: cfg.train_dataloader.dataset.dataset.pipeline[-1],
        tta=lambda: cfg.tta_pipeline[0].transforms[0][-1],
        hook=lambda: cfg.custom_hooks[0].switch_pipeline[-1],
        batch=lambda: cfg.model.data_preprocessor.batch_augments[-1],
    )[place]()
    assert dict(found) == {**step, **sizes}


@pytest.mark.parametrize(
    ('key', 'value', 'named'),
    [
        ('target_height', 640, True),
        ('tile_px', [64, 512], True),
        ('somewhere', 800, True),
        ('pad_val', 114, False),
        ('num_sizes', 100, False),
        ('max_cached_images', 40, False),
        ('ratio_range', (0.5, 2.0), False),
    ],
)
def test_what_looks_like_a_size_and_is_not_known_is_named(key, value, named):
    cfg = config()
    cfg.train_dataloader.dataset.dataset.pipeline.append(dict(type='Mine', **{key: value}))
    text = '\n'.join(set_image_size(cfg, 400))
    assert (f'train_dataloader.dataset.dataset.pipeline.3.{key}={value}' in text) == named
    cfg.model.bbox_head.anchor_generator.input_size = 300
    cfg.model.bbox_head.regress_ranges = ((-1, 64), (64, 128))  # FCOS's
    text = '\n'.join(set_image_size(cfg, 200))
    assert 'model.bbox_head.anchor_generator.input_size=300' in text
    assert 'model.bbox_head.regress_ranges=((-1, 64), (64, 128))' in text


def test_a_batch_is_padded_to_a_multiple_of_what_it_was_padded_to_before():
    cfg = config()
    pad = dict(type='BatchFixedSizePad', size=(1024, 960))
    cfg.model.data_preprocessor = dict(type='DetDataPreprocessor', batch_augments=[pad], pad_size_divisor=32)
    set_image_size(cfg, 96)  # 123 and 115 pixels: a batch that is 128 wide, its masks too, could not be padded to them
    assert cfg.model.data_preprocessor.batch_augments[0]['size'] == (128, 128)


@pytest.mark.parametrize(
    ('pipeline', 'side', 'halved'),
    [
        ([dict(type='ResizeEdge', scale=256, edge='short'), dict(type='CenterCrop', crop_size=224)], 224, (128, 112)),
        ([dict(type='FixShapeResize', width=1024, height=640)], 640, (512, 320)),
        ([dict(type='ResizeShortestEdge', scale=800, max_size=1333)], 800, (400, 666)),
        ([dict(type='Resize', scale=(640, 640)), dict(type='Pad', size=(640, 640))], 640, ((320, 320), (320, 320))),
    ],
)
def test_the_size_of_test_images_is_found_by_arguments(pipeline, side, halved):
    cfg = config()
    cfg.test_dataloader = dict(dataset=dict(pipeline=pipeline))
    assert short_side(cfg) == side
    set_image_size(cfg, side // 2)
    assert short_side(cfg) == side // 2
    steps = cfg.test_dataloader.dataset.pipeline
    lengths = tuple(
        step[key]
        for step in steps
        for key in ('scale', 'width', 'height', 'crop_size', 'max_size', 'size')
        if key in step
    )
    assert lengths == halved


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
    use_trained_size(Plan(cfg), dict(classes=('a',)))
    assert short_side(cfg) == 320
    pipeline = cfg.test_dataloader.dataset.pipeline
    for key, value in (('pipeline.1.scale', (533, 320)), ('pipeline', pipeline)):  # by --cfg-options
        use_trained_size(Plan(cfg, {f'test_dataloader.dataset.{key}': value}), dict(image_size=640))
        assert short_side(cfg) == 320
    use_trained_size(Plan(cfg, {'test_dataloader.batch_size': 1}), dict(image_size=640))
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (1066, 640)


@pytest.mark.parametrize(('median', 'size'), [(256, 512), (60, 128), (400, None), (480, None), (2000, None)])
def test_small_images_are_enlarged_twofold_at_most(median, size):
    assert fitting_size(config(), median) == size


def test_small_images_are_those_with_short_sides():
    images = [dict(width=400, height=100), dict(width=100, height=900)]
    choose_image_size(plan := Plan(config()), dict(images=images), None)
    assert short_side(plan.cfg) == 192
    assert plan.steps[-1].why == 'short side of the images 192 pixels (recipe: 800)'
