"""The sampler of batches: numbers of samples, by which augmentation is seeded, and batches that are dropped."""

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from torch.utils.data import SequentialSampler

from tokennorm.engine.resume.sampler import ResumableBatchSampler
from tokennorm.engine.resume.training_state import make_resumable

IMAGES, TOTAL_BATCH, EPOCHS = 12, 4, 2


def images_by_number(world_size, monkeypatch):
    """The image of each number, of all ranks in all epochs."""
    images = {}
    for rank in range(world_size):
        for module in ('mmengine.dataset.sampler', 'tokennorm.engine.resume.sampler'):
            monkeypatch.setattr(f'{module}.get_dist_info', lambda rank=rank: (rank, world_size))
        sampler = DefaultSampler(range(IMAGES), seed=0)
        batches = ResumableBatchSampler(sampler, batch_size=TOTAL_BATCH // world_size)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for draw in (draw for batch in batches for draw in batch):
                assert draw.number not in images
                images[draw.number] = int(draw)
    return images


class Landscape:
    def get_data_info(self, index):
        return dict(width=20, height=10)


@pytest.mark.parametrize('world_size', [2, 4])
def test_sample_numbers_do_not_depend_on_the_ranks(world_size, monkeypatch):
    alone = images_by_number(1, monkeypatch)
    assert sorted(alone) == list(range(EPOCHS * IMAGES))
    assert images_by_number(world_size, monkeypatch) == alone


@pytest.mark.parametrize('inner', [None, dict(type='mmdet.AspectRatioBatchSampler')])
@pytest.mark.parametrize(('drop_last', 'batches'), [(True, 3), (False, 4)])
def test_drop_last_reaches_the_loader(inner, drop_last, batches):
    loader = dict(batch_size=4, drop_last=drop_last, batch_sampler=inner)
    cfg = Config(dict(train_dataloader=loader))
    make_resumable(cfg)
    assert 'drop_last' not in cfg.train_dataloader
    sampler = torch.utils.data.SequentialSampler(range(13))
    sampler.dataset = Landscape()
    arguments = {key: value for key, value in cfg.train_dataloader.batch_sampler.items() if key != 'type'}
    made = list(ResumableBatchSampler(sampler, 4, **arguments))
    assert (len(made), len(made[-1])) == (batches, 4 if drop_last else 1)


def test_samples_of_mixed_batch_sizes_have_their_own_seeds():
    batches = [[5, 1, 2, 7], [3, 4], [0, 6, 8, 9], [2, 1]]
    sampler = ResumableBatchSampler([], [4, 2], dict(type=lambda sampler, batch_size: batches))
    numbers = [draw.number for batch in sampler for draw in batch]
    assert len(set(numbers)) == len(numbers) == 12


def test_too_little_data_for_a_batch_raises():
    sampler = ResumableBatchSampler(SequentialSampler(range(3)), 4, drop_last=True)
    assert sampler.skip(0) == 0
    with pytest.raises(ValueError, match=r'3 samples give no batch of 4'):
        sampler.skip(2)


def test_skipped_passes_are_followed_by_the_order_of_their_epoch():
    sampler = DefaultSampler(range(IMAGES), seed=0)
    batches = ResumableBatchSampler(sampler, TOTAL_BATCH)
    assert batches.skip(IMAGES // TOTAL_BATCH + 1, epoch=3) == 1
    rest = [int(draw) for batch in batches for draw in batch]
    sampler.set_epoch(4)
    assert rest == list(sampler)[TOTAL_BATCH:]
