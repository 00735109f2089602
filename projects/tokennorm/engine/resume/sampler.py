"""Batch sampler that resumes mid-epoch, with the augmentation of an uninterrupted run.

mmengine restarts an epoch when it resumes in the middle, and restarts the seeds of its data workers. Here the batch
sampler skips the batches that were trained on, without loading them, and numbers every sample that it draws. That
number seeds the sample's augmentation. Augmentation is therefore the same for any number of workers, and a total batch
is the same for any number of ranks.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from mmengine.dist import get_dist_info
from mmengine.registry import DATA_SAMPLERS as HOST_SAMPLERS
from torch.utils.data import BatchSampler, Sampler

from tokennorm.engine.resume.random_state import preserved_generators, seed_generators
from tokennorm.registry import DATA_SAMPLERS


class NumberedIndex(int):
    """An index of a dataset, with the number of the sample in the run: 0 is the first one drawn."""

    number: int

    def __new__(cls, index: int, number: int) -> 'NumberedIndex':
        numbered = super().__new__(cls, index)
        numbered.number = number
        return numbered

    def __getnewargs__(self) -> tuple[int, int]:
        return int(self), self.number


@DATA_SAMPLERS.register_module()
class ResumableBatchSampler(Sampler[list[NumberedIndex]]):
    """The batches of another batch sampler, numbered.

    `batch_sampler` is its config; None for torch's `BatchSampler`. Samplers of several datasets have a `batch_size` for
    each. `drawn` counts the batches since the beginning of training.
    """

    def __init__(
        self,
        sampler: Sampler,
        batch_size: int | Sequence[int],
        batch_sampler: dict[str, Any] | None = None,
        drop_last: bool = False,
    ) -> None:
        if batch_sampler is None:
            self.batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        else:
            self.batch_sampler = HOST_SAMPLERS.build(
                dict(batch_sampler), default_args=dict(sampler=sampler, batch_size=batch_size)
            )
        self.sampler = sampler  # mmengine sets its epoch
        self.batch_size = batch_size if isinstance(batch_size, int) else max(batch_size)
        self.drawn = 0
        self._rest = None  # iterator of the interrupted epoch

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def skip(self, num_batches: int, epoch: int = 0, first: int = 0) -> int:
        """Skips batches from the beginning of an epoch's pass, whole passes included, and returns the number of those.

        The epoch seeds the sampler's order; `first` batches of training were before that pass.
        """
        self.drawn = first
        passes = -1
        while passes < 0 or self.drawn < first + num_batches:
            passes += 1
            if hasattr(self.sampler, 'set_epoch'):
                self.sampler.set_epoch(epoch + passes)
            self._rest = iter(self.batch_sampler)
            with preserved_generators():
                left_out = sum(1 for _ in islice(self._rest, first + num_batches - self.drawn))
            if num_batches and not left_out:
                raise ValueError(f'{len(self.sampler)} samples give no batch of {self.batch_size}: use a smaller batch')
            self.drawn += left_out
        return passes

    def __iter__(self) -> Iterator[list[NumberedIndex]]:
        rank, world_size = get_dist_info()
        batches, self._rest = self._rest or iter(self.batch_sampler), None
        for batch in batches:
            first = self.drawn * self.batch_size
            self.drawn += 1
            yield [NumberedIndex(index, (first + place) * world_size + rank) for place, index in enumerate(batch)]


def seeded_samples(dataset: Any, seed: int, draws: list[NumberedIndex]) -> list[Any]:
    """Gets the samples of a batch for torch's loader (`__getitems__`), each with its own random numbers."""
    samples = []
    with preserved_generators():
        for draw in draws:
            seed_generators(seed, draw.number)
            samples.append(dataset[int(draw)])
    return samples
