"""Numbers of samples, by which augmentation is seeded: those of one rank for any number of ranks."""

import pytest
from mmengine.dataset import DefaultSampler

from tokennorm.engine.resume.sampler import ResumableBatchSampler

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


@pytest.mark.parametrize('world_size', [2, 4])
def test_sample_numbers_do_not_depend_on_the_ranks(world_size, monkeypatch):
    alone = images_by_number(1, monkeypatch)
    assert sorted(alone) == list(range(EPOCHS * IMAGES))
    assert images_by_number(world_size, monkeypatch) == alone
