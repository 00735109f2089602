"""Batches of images of one size, each image once for two ranks."""

from mmengine.dataset import DefaultSampler
from torch.utils.data import SequentialSampler

from tokennorm.evaluation.batches import SameSizeBatchSampler

SIZES = [(64, 48), (48, 64), (64, 64), (48, 64), (100, 40), (64, 48), (48, 64)]  # width, height


class Data:
    def __init__(self, infos):
        self.infos = infos

    def __len__(self):
        return len(self.infos)

    def get_data_info(self, index):
        return self.infos[index]


def test_batches_have_images_of_one_size():
    dataset = Data([dict(width=w, height=h) for w, h in SIZES])
    sampler = SequentialSampler(dataset)
    sampler.dataset = dataset
    batches = SameSizeBatchSampler(sampler, 2)
    assert list(batches) == [[0, 5], [1, 3], [6], [2], [4]]
    assert len(batches) == 5
    assert list(SameSizeBatchSampler(sampler, 1)) == [[i] for i in range(7)]  # the order that `test --out` promises
    dataset.cumulative_sizes = [5, 7]  # two datasets of a concatenation, one after the other
    assert list(SameSizeBatchSampler(sampler, 2)) == [[0], [1, 3], [2], [4], [5], [6]]
    del dataset.cumulative_sizes
    dataset.infos = [{}, {}, {}]
    assert list(SameSizeBatchSampler(sampler, 2)) == [[0], [1], [2]]


def test_two_ranks_evaluate_each_image_once(monkeypatch):
    dataset, ranks = Data([dict(width=width, height=1) for width in (1, 1, 2, 2, 1)]), []
    for rank in (0, 1):  # the second one has image 0 as its third, so that both have as many
        monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda rank=rank: (rank, 2))
        batches = SameSizeBatchSampler(DefaultSampler(dataset, shuffle=False), 2)
        ranks.append([index for batch in batches for index in batch])
    collected = [index for pair in zip(*ranks, strict=True) for index in pair]
    assert sorted(collected[:5]) == [0, 1, 2, 3, 4]  # mmengine cuts off the rest
