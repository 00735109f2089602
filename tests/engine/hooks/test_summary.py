"""The summary of a training run: its data, its image size and its intervals."""

import re
from types import SimpleNamespace

import pytest
from mmengine.dataset import BaseDataset, RepeatDataset

from tokennorm.engine.hooks import summary
from tokennorm.engine.hooks.summary import describe_data, describe_threads, evaluated_size
from tokennorm.plan.schedule import every


class Data(BaseDataset):
    METAINFO = dict(classes=('cat', 'dog'))

    def load_data_list(self):
        return [{}] * 7


def test_data_are_images_samples_and_classes():
    cfg = dict(type='CocoDataset', data_root='data/', ann_file='annotations/train.json')
    loader = SimpleNamespace(dataset=Data())
    assert describe_data(cfg, loader) == '7 images, 2 classes (data/annotations/train.json)'
    loader.dataset = Data(metainfo=dict(classes=('cat',)))
    assert describe_data(cfg, loader) == '7 images, 1 class (data/annotations/train.json)'
    loader.dataset = RepeatDataset(loader.dataset, times=3)
    wrapped = describe_data(dict(type='RepeatDataset', times=3, dataset=cfg), loader)
    assert wrapped == '7 images, 21 samples per epoch, 1 class (data/annotations/train.json)'
    folder = dict(type='ImageNet', data_root='data', data_prefix='val')
    assert describe_data(folder, SimpleNamespace(dataset=Data())).endswith('(data/val)')


@pytest.mark.parametrize(
    ('steps', 'size'),
    [
        ([('Resize', dict(scale=(1333, 800)))], 800),
        ([('Resize', dict(scale=(96, 64))), ('Pad', {})], 64),
        ([('ResizeEdge', dict(scale=256)), ('CenterCrop', dict(crop_size=(224, 224)))], 224),
        ([('LoadImageFromFile', {})], None),
    ],
)
def test_the_size_is_that_of_the_last_step_that_resizes(steps, size):
    transforms = [type(name, (), values)() for name, values in steps]
    assert evaluated_size(SimpleNamespace(pipeline=SimpleNamespace(transforms=transforms))) == size
    assert evaluated_size(object()) is None


@pytest.mark.parametrize(
    ('threads', 'others', 'chosen', 'faster'),
    [
        (2, 0.0, None, None),
        (2, 0.45, None, None),
        (2, 1.0, None, 1),
        (2, 3.0, None, 1),
        (2, 1.0, '2', None),  # the user's
        (1, 2.0, None, None),  # no fewer
        (8, 1.1, None, 7),
        (4, 3.0, None, None),  # four of eight cores, as in a container or with two hyper-threads per core
        (4, 5.6, None, 2),
    ],
)
def test_fewer_threads_are_named_where_other_programs_run(monkeypatch, threads, others, chosen, faster):
    monkeypatch.setattr(summary, 'logical_cores', lambda: 2 if threads < 4 else 8)
    monkeypatch.setattr(summary, 'chosen_threads', lambda: chosen)
    text = describe_threads(threads, 1, others)
    assert text.startswith(f'{threads}; ')
    found = re.search(r'so (\d+) would be faster: OMP_NUM_THREADS=(\d+) tokennorm train', text)
    assert (found and found.groups()) == (faster and (str(faster),) * 2)
    assert 'OMP_NUM_THREADS' in text
    assert describe_threads(1, 2, others) == '1 in each of 2 processes; OMP_NUM_THREADS sets another number'


def test_intervals_in_words():
    assert [every(interval) for interval in (1, 5)] == ['after every epoch', 'after every 5 epochs']
