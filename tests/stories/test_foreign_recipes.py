"""mmdet's own recipes, trained for two epochs with `--data`, `--image-size` and `--epochs`: their sizes and rates."""

import pytest
from mmengine.config import Config

import tokennorm
from experiments.shapes import make_shapes_dataset
from tests.helpers.scalars import logged
from tokennorm.config.tree import walk
from tokennorm.registry import type_name

SIZE, EPOCHS = 96, 2
# A config of mmdet; lengths in pixels, of images of 416 (YOLOX), 640 (RTMDet) and 800 before; the epoch of a switch.
RECIPES = {
    'yolox': (
        'yolox/yolox_tiny_8xb8-300e_coco',
        [('Mosaic', 'img_scale', (148, 148)), ('RandomAffine', 'border', (-74, -74)), ('Resize', 'scale', (96, 96))],
        ('num_last_epochs', 1),
    ),
    'rtmdet': (
        'rtmdet/rtmdet_tiny_8xb32-300e_coco',
        [
            *(('CachedMosaic', 'img_scale', (96, 96)), ('RandomResize', 'scale', (192, 192))),
            *(('RandomCrop', 'crop_size', (96, 96)), ('Pad', 'size', (96, 96)), ('CachedMixUp', 'img_scale', (96, 96))),
        ],
        ('switch_epoch', 1),
    ),
    'ssd': ('ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco', [('Resize', 'scale', (96, 96))], None),
    'faster-rcnn': ('faster_rcnn/faster-rcnn_r50_fpn_1x_coco', [('Resize', 'scale', (160, 96))], None),
    'dino': (
        'dino/dino-4scale_r50_8xb2-12e_coco',
        [('RandomChoiceResize', 'scales', (58, 160)), ('RandomCrop', 'crop_size', (46, 72))],
        None,
    ),
}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('shapes'), num_train=6, num_val=2, image_size=128)


def train(name, data, work_dir, **more):
    options = {'train_dataloader.batch_size': 2, 'val_dataloader.batch_size': 2, 'default_hooks.logger.interval': 1}
    common = dict(epochs=EPOCHS, image_size=SIZE, workers=0, seed=1, device='cpu', init='none', work_dir=work_dir)
    return tokennorm.train(f'mmdet::{RECIPES[name][0]}', data, cfg_options=options | more, **common)


@pytest.mark.slow
@pytest.mark.parametrize('name', RECIPES)
def test_a_recipe_of_mmdet_trains_at_another_size_and_length(name, data, tmp_path):
    more = {'train_dataloader.dataset.times': 1} if name == 'ssd' else {}
    if name == 'dino':  # 900 queries need larger images
        more = {'model.num_queries': 30}
    result = train(name, data, tmp_path, **more)
    assert 0 <= result.metrics['coco/bbox_mAP'] <= 1
    cfg = Config.fromfile(next(tmp_path.glob('*.py')))
    _, lengths, switch = RECIPES[name]
    places = ('train_dataloader', 'custom_hooks', 'tta_pipeline', 'val_dataloader')
    steps = [step for place in places for _, step in walk(cfg.get(place), place)]
    for kind, key, value in lengths:
        found = [step[key] for step in steps if type_name(step) == kind and key in step]
        assert found
        assert value in [
            tuple(one) for scale in found for one in (scale if isinstance(scale[0], tuple | list) else [scale])
        ]
    for step in steps:  # nothing is left at its old size
        for value in step.values():
            assert not (isinstance(value, tuple | list) and 640 in value), step
    if switch is not None:
        assert switch in [(key, step[key]) for step in steps for key in (switch[0],) if key in step]
    rates = [entry['lr'] for entry in logged(tmp_path) if 'lr' in entry]
    assert len(rates) == EPOCHS * 3
    assert rates[-1] < max(rates)
    assert cfg.train_cfg.max_epochs == EPOCHS
    assert not {'max_epochs', 'img_scale', 'base_lr'} & set(cfg)  # variables that would contradict the rest
