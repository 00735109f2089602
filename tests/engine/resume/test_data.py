"""Datasets, transforms and samplers of mmdet's: a resumed training gives the model the images, byte for byte, that an
uninterrupted one would have given it, with and without worker processes."""

import hashlib

import cv2
import numpy as np
import pytest
from mmdet.structures import DetDataSample  # noqa: F401 - registers mmdet's transforms
from mmengine.dataset import BaseDataset
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from torch import nn

from tests.helpers.cases import fast_first
from tests.helpers.toy_training import EPOCHS as FOUR_EPOCHS
from tests.helpers.toy_training import ITERATIONS, collect_garbage, train  # noqa: F401

EPOCHS = FOUR_EPOCHS | dict(max_epochs=3)
NUM_IMAGES = 12
WIDTH, HEIGHT = 12, 8


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Of noise, wide ones and upright ones."""
    folder = tmp_path_factory.mktemp('images')
    generator = np.random.default_rng(0)
    for index in range(NUM_IMAGES):
        width, height = _size(index)
        cv2.imwrite(str(folder / f'{index}.png'), generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
    return folder


def _size(index):
    return (WIDTH, HEIGHT) if index % 3 else (HEIGHT, WIDTH)


@DATASETS.register_module()
class NoiseImages(BaseDataset):
    """Each image has one box; the second class is rare."""

    root = None  # folder
    METAINFO = dict(classes=('often', 'rare'))

    def load_data_list(self):
        samples = []
        for index in range(NUM_IMAGES):
            width, height = _size(index)
            instance = dict(bbox=[1, 1, width - 1, height - 1], bbox_label=int(index == 7), ignore_flag=0)
            path = f'{NoiseImages.root}/{index}.png'
            sample = dict(img_path=path, img_id=index, width=width, height=height, instances=[instance])
            samples.append(sample)
        return samples

    def get_cat_ids(self, index):
        return [instance['bbox_label'] for instance in self.get_data_info(index)['instances']]


@MODELS.register_module()
class Witness(BaseModel):
    """Keeps a digest of each batch that reaches it."""

    seen = []

    def __init__(self, data_preprocessor=None):
        super().__init__(data_preprocessor)
        self.net = nn.Linear(1, 1)
        self.bbox_head = nn.Module()  # whose `use_l1` the hook sets

    def forward(self, inputs, data_samples=None, mode='loss'):
        digest = hashlib.sha1(inputs.numpy().tobytes())
        for sample in data_samples:
            digest.update(sample.gt_instances.bboxes.numpy().tobytes())
        names = ' '.join(str(sample.img_id) for sample in data_samples)
        Witness.seen.append((names, tuple(inputs.shape), digest.hexdigest()))
        return dict(loss=self.net(inputs.mean().view(1, 1)).square().mean())


LOAD = [dict(type='mmdet.LoadImageFromFile'), dict(type='mmdet.LoadAnnotations', with_bbox=True)]
PACK = [dict(type='mmdet.PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
FLIP = [dict(type='mmdet.RandomFlip', prob=0.5), *PACK]
MULTI_SCALE = [
    *LOAD,
    dict(type='RandomChoiceResize', scales=[(8, 16), (16, 24), (24, 32)], resize_type='mmdet.Resize', keep_ratio=True),
    *FLIP,
]


def images(pipeline=(*LOAD, *FLIP)):
    return dict(type='NoiseImages', serialize_data=False, pipeline=list(pipeline))


SCALE = (16, 16)
MIXED_TYPES = ('mmdet.Mosaic', 'mmdet.RandomAffine', 'mmdet.MixUp')
MIXED = dict(
    type='mmdet.MultiImageMixDataset',
    dataset=images(LOAD),
    pipeline=[
        dict(type='mmdet.Mosaic', img_scale=SCALE, pad_val=114.0),
        dict(type='mmdet.RandomAffine', scaling_ratio_range=(0.5, 1.5), border=(-8, -8)),
        dict(type='mmdet.MixUp', img_scale=SCALE, ratio_range=(0.8, 1.6), pad_val=114.0),
        dict(type='mmdet.YOLOXHSVRandomAug'),
        dict(type='mmdet.RandomFlip', prob=0.5),
        dict(type='mmdet.Resize', scale=SCALE, keep_ratio=True),
        dict(type='mmdet.Pad', pad_to_square=True, pad_val=dict(img=(114.0, 114.0, 114.0))),
        *PACK,
    ],
)
CONCATENATED = dict(type='mmdet.ConcatDataset', datasets=[images(), images(MULTI_SCALE)])
SWITCH = dict(type='mmdet.YOLOXModeSwitchHook', num_last_epochs=1, skip_type_keys=MIXED_TYPES)
SHUFFLED = dict(type='DefaultSampler', shuffle=True)
SOURCES = dict(type='mmdet.MultiSourceSampler', batch_size=3, source_ratio=[1, 2])
ASPECT_RATIOS = dict(type='mmdet.AspectRatioBatchSampler')
INFINITE = dict(type='InfiniteSampler')
RESIZED = dict(type='mmdet.BatchSyncRandomResize', random_size_range=(8, 64), interval=3, size_divisor=4)
CASES = {
    'repeated': dict(dataset=dict(type='RepeatDataset', times=2, dataset=images())),
    'class-balanced': dict(dataset=dict(type='ClassBalancedDataset', oversample_thr=0.5, dataset=images())),
    'concatenated': dict(dataset=CONCATENATED),
    'multi-scale': dict(dataset=images(MULTI_SCALE)),
    'resized batches': dict(dataset=images(), batch_augments=[RESIZED]),
    'mixed': dict(dataset=MIXED, custom_hooks=[SWITCH]),
    'mixed by iterations': dict(dataset=MIXED, train_cfg=ITERATIONS, sampler=INFINITE),
    'passes by iterations': dict(dataset=images(), train_cfg=ITERATIONS),
    'aspect ratios': dict(dataset=images(), batch_sampler=ASPECT_RATIOS),
    'aspect ratios by iterations': dict(
        dataset=images(), train_cfg=ITERATIONS, sampler=INFINITE, batch_sampler=ASPECT_RATIOS
    ),
    'an epoch shorter than its stated length': dict(
        dataset=images(), batch_sampler=ASPECT_RATIOS | dict(drop_last=True)
    ),
    'class-aware': dict(dataset=images(), sampler=dict(type='mmdet.ClassAwareSampler')),
    'sources': dict(dataset=CONCATENATED, train_cfg=ITERATIONS, sampler=SOURCES),
}


def batches(
    work_dir,
    root,
    dataset,
    train_cfg=EPOCHS,
    sampler=SHUFFLED,
    batch_sampler=None,
    batch_augments=None,
    custom_hooks=(),
    workers=0,
    persistent=False,
    **stop,
):
    """Those that reach the model."""

    def prepare(cfg):
        cfg.model = dict(
            type='Witness',
            data_preprocessor=dict(type='mmdet.DetDataPreprocessor', pad_size_divisor=4, batch_augments=batch_augments),
        )
        loader = cfg.train_dataloader
        loader.dataset, loader.sampler, loader.batch_sampler.batch_sampler = dataset, sampler, batch_sampler
        loader.num_workers, loader.persistent_workers = workers, persistent
        cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
        cfg.custom_hooks.extend(custom_hooks)

    Witness.seen = []
    NoiseImages.root = root
    train(work_dir, train_cfg=train_cfg, interval=1, by_epoch=False, prepare=prepare, **stop)
    return Witness.seen


@pytest.mark.usefixtures('quick_workers')
@pytest.mark.parametrize('name', fast_first(CASES, 'mixed'))
def test_resumed_images_are_equal_byte_for_byte(tmp_path, folder, name):
    """Stopped in the middle of an epoch of four batches or more, and at its end; each part with other workers."""
    whole = batches(tmp_path / 'whole', folder, **CASES[name])
    parts = batches(tmp_path / 'stopped', folder, iteration=5, **CASES[name])
    parts += batches(tmp_path / 'stopped', folder, iteration=8, resume=True, workers=2, persistent=True, **CASES[name])
    parts += batches(tmp_path / 'stopped', folder, resume=True, workers=2, **CASES[name])
    assert parts == whole
    assert len(set(whole)) == len(whole), 'a batch comes twice'
