"""Image sizes: every argument in pixels follows, trained anchors stay, and what is not known is named."""

import pytest
from mmdet.datasets.transforms import MixUp

from tests.helpers.configs import anchors_config
from tokennorm.plan.image_size import fitting_size, set_image_size, short_side

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
    cfg = anchors_config()
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
    cfg = anchors_config()
    cfg.train_dataloader.dataset.dataset.pipeline.append(dict(type='Mine', **{key: value}))
    text = '\n'.join(set_image_size(cfg, 400))
    assert (f'train_dataloader.dataset.dataset.pipeline.3.{key}={value}' in text) == named
    cfg.model.bbox_head.anchor_generator.input_size = 300
    cfg.model.bbox_head.regress_ranges = ((-1, 64), (64, 128))  # FCOS's
    text = '\n'.join(set_image_size(cfg, 200))
    assert 'model.bbox_head.anchor_generator.input_size=300' in text
    assert 'model.bbox_head.regress_ranges=((-1, 64), (64, 128))' in text


def test_a_batch_is_padded_to_a_multiple_of_what_it_was_padded_to_before():
    cfg = anchors_config()
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
    cfg = anchors_config()
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
    cfg = anchors_config()
    cfg.tta_pipeline = [dict(type='TestTimeAug', transforms=[[dict(type='Resize', scale=(2000, 1200))], []])]
    assert short_side(cfg) == 800
    set_image_size(cfg, 320)
    assert short_side(cfg) == 320
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (533, 320)
    train = cfg.train_dataloader.dataset.dataset.pipeline
    assert train[1].scales == [(533, 256), (533, 320)]
    assert train[2].crop_size == (160, 0.5)
    assert cfg.tta_pipeline[0].transforms[0][0].scale == (800, 480)


@pytest.mark.parametrize(('median', 'size'), [(256, 512), (60, 128), (400, None), (480, None), (2000, None)])
def test_small_images_are_enlarged_twofold_at_most(median, size):
    assert fitting_size(anchors_config(), median) == size
