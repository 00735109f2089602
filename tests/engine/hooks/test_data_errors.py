"""A file that cannot be read stops a training run or an evaluation with its name, from worker processes too."""

import json

import cv2
import numpy as np
import pytest
from mmdet.registry import DATASETS
from mmdet.utils import register_all_modules
from torch.utils.data import DataLoader

from tokennorm.engine.hooks.data_errors import DataError, DataErrorHook

HEIGHT, WIDTH = 24, 32
PIPELINE = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs'),
]


@pytest.fixture
def folder(tmp_path):
    register_all_modules(init_default_scope=True)
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    for i in range(3):
        cv2.imwrite(str(tmp_path / f'{i}.png'), pixels)
    images = [dict(id=i + 1, file_name=f'{i}.png', height=HEIGHT, width=WIDTH) for i in range(3)]
    box = dict(bbox=[2, 2, 9, 8], area=72, iscrowd=0, segmentation=[[2, 2, 11, 2, 11, 10, 2, 10]])
    annotations = [dict(box, id=i + 1, image_id=i + 1, category_id=3) for i in range(3)]
    categories = [dict(id=3, name='cat'), dict(id=7, name='dog')]
    content = dict(images=images, annotations=annotations, categories=categories)
    (tmp_path / 'train.json').write_text(json.dumps(content))
    return tmp_path


def dataset(folder, wrapper=None):
    """mmdet's dataset after the hook, as a runner calls it."""
    cfg = dict(type='CocoDataset', data_root=str(folder), ann_file='train.json', data_prefix=dict(img=''))
    cfg |= dict(serialize_data=False, metainfo=dict(classes=('cat', 'dog')), pipeline=PIPELINE)
    built = DATASETS.build(wrapper(cfg) if wrapper else cfg)

    class Loop:
        dataloader = DataLoader(built)

    class AtWork:
        _train_loop = Loop
        _val_loop = dict(type='ValLoop')  # not built
        _test_loop = None

    DataErrorHook().before_run(AtWork)
    return built


def empty(path):
    path.write_bytes(b'')


def truncated(path):
    path.write_bytes(path.read_bytes()[:-900])


def no_file(path):
    path.unlink()


@pytest.mark.parametrize('damage', [empty, truncated, no_file])
def test_an_image_that_cannot_be_read_is_named(folder, damage):
    damage(folder / '1.png')
    loaded = dataset(folder)
    assert loaded[0]['inputs'].shape == (3, HEIGHT, WIDTH)
    with pytest.raises(DataError, match=rf'^{folder}/1.png \(image id 2\) or its annotations cannot be read: \w+: '):
        loaded[1]


WRAPPERS = [
    lambda d: dict(type='RepeatDataset', times=2, dataset=d),
    lambda d: dict(type='ConcatDataset', datasets=[d, d]),
    lambda d: dict(type='MultiImageMixDataset', dataset=d, pipeline=[]),
]


@pytest.mark.parametrize('wrapper', WRAPPERS)
def test_wrapped_datasets_too(folder, wrapper):
    empty(folder / '0.png')
    with pytest.raises(DataError, match=r'/0\.png'):
        dataset(folder, wrapper)[0]


def test_a_worker_process_hands_the_name_on(folder):
    empty(folder / '2.png')
    loader = DataLoader(dataset(folder), num_workers=1, batch_size=None)
    with pytest.raises(DataError) as raised:
        list(loader)
    assert str(raised.value).startswith(f'{folder}/2.png (image id 3) or its annotations cannot be read: error: OpenCV')
    assert 'Traceback' not in str(raised.value)
