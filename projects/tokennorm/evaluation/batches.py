"""Batches for evaluation, in which no image is padded to the size of another."""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from tokennorm.registry import DATA_SAMPLERS

BATCH_SAMPLER = dict(type='tokennorm.SameSizeBatchSampler')


@DATA_SAMPLERS.register_module()
class SameSizeBatchSampler(Sampler[list[int]]):
    """Batches of images with the same width and height in the annotations; without these, single images.

    With a `batch_size` of 1 the images keep their order, by which mmdet's tools read what `test --out` writes.
    Attention and convolutions see the padding of a batch, so that an image's detections would depend on the others. The
    datasets of a concatenation stay in their order, by which mmdet's `MultiDatasetsEvaluator` tells them apart. What
    the sampler repeats at its end, so that ranks have as many images, stays there: mmengine cuts off the last results.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        self.sampler, self.batch_size = sampler, batch_size

    def _batches(self) -> list[list[int]]:
        by_size = defaultdict(list)
        ends, before = getattr(self.sampler.dataset, 'cumulative_sizes', ()), -1
        for index in self.sampler:
            info = {} if self.batch_size == 1 else self.sampler.dataset.get_data_info(index)
            size = info.get('width'), info.get('height')
            is_repeated, before = index < before, index
            by_size[is_repeated, bisect(ends, index), size if all(size) else index].append(index)
        step = self.batch_size
        return [group[i : i + step] for group in by_size.values() for i in range(0, len(group), step)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches())

    def __len__(self) -> int:
        return len(self._batches())


def use_batches_of_one_size(cfg: Any) -> None:
    """Has a detector's config validate and test with `SameSizeBatchSampler`, where no batch sampler is set."""
    if cfg.get('default_scope') != 'mmdet':
        return
    for split in ('val', 'test'):
        if cfg.get(f'{split}_dataloader'):
            cfg[f'{split}_dataloader'].setdefault('batch_sampler', dict(BATCH_SAMPLER))
