"""Batches that a resumed training goes on with where it stopped, augmented as if it had never stopped.

mmengine starts an epoch anew when it resumes in its middle, and its data workers start anew from their seeds. Here the
batch sampler skips what has been trained on, without loading it, and numbers every sample that it draws; the sample's
augmentation is seeded with that number. It is then also the same for any number of workers, and a total batch that is
divided among more processes is the same batch.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from mmengine.dist import get_dist_info
from mmengine.registry import DATA_SAMPLERS as HOST_SAMPLERS
from torch.utils.data import BatchSampler, DataLoader, Sampler

from tokennorm.engine.resume.random_state import Generators, preserved_generators, seed_generators
from tokennorm.registry import DATA_SAMPLERS


class Draw(int):
    """An index of a dataset, with the number of the sample in the training: 0 is the first one drawn."""

    number: int

    def __new__(cls, index: int, number: int) -> 'Draw':
        draw = super().__new__(cls, index)
        draw.number = number
        return draw

    def __getnewargs__(self) -> tuple[int, int]:
        return int(self), self.number


@DATA_SAMPLERS.register_module()
class ResumableBatchSampler(Sampler[list[Draw]]):
    """The batches of another batch sampler, numbered.

    Args:
        sampler: Sampler of the dataset's indices.
        batch_size: Samples in a batch; samplers of several datasets have one for each.
        batch_sampler: Config of the batch sampler; None is torch's `BatchSampler`.
        drop_last: Whether torch's leaves out an incomplete last batch.

    Attributes:
        drawn: Batches since the beginning of the training.
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
        self._rest = None  # of the pass that a resumed training goes on with

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def skip(self, num_batches: int, epoch: int = 0, first: int = 0) -> int:
        """Leaves out the first batches of the pass of an epoch; where it has fewer, whole passes before.

        Args:
            num_batches: How many to leave out.
            epoch: What the sampler's order depends on.
            first: Batches of the training before that pass.

        Returns:
            How many whole passes: 0 with a sampler that does not end.

        Raises:
            ValueError: where a pass has no batch, of data that are too few for one.
        """
        self.drawn = first
        passes = -1
        while passes < 0 or self.drawn < first + num_batches:
            passes += 1
            if hasattr(self.sampler, 'set_epoch'):
                self.sampler.set_epoch(epoch + passes)
            self._rest = self._start_pass()
            left_out = self._rest.draw(first + num_batches - self.drawn)
            if num_batches and not left_out:
                raise ValueError(f'{len(self.sampler)} samples give no batch of {self.batch_size}: use a smaller batch')
            self.drawn += len(left_out)
        return passes

    def __iter__(self) -> Iterator[list[Draw]]:
        rank, world_size = get_dist_info()
        batches, self._rest = self._rest or self._start_pass(), None
        while drawn := batches.draw(1):
            first = self.drawn * self.batch_size
            self.drawn += 1
            yield [Draw(index, (first + place) * world_size + rank) for place, index in enumerate(drawn[0])]

    def _start_pass(self) -> '_Pass':
        return _Pass(iter(self.batch_sampler), Generators(getattr(self.sampler, 'seed', None) or 0, self.drawn, 1))


class _Pass:
    """Batches of one pass over the data. Some samplers draw from the generators of the process, such as mmdet's
    `GroupMultiSourceSampler`: here from others, so that what is skipped is what had been drawn."""

    def __init__(self, batches: Iterator[list[int]], generators: Generators) -> None:
        self.batches = batches
        self.generators = generators

    def draw(self, count: int) -> list[list[int]]:
        """The next batches, fewer where it ends."""
        with self.generators:
            return list(islice(self.batches, count))


class SeededSamples:
    """How torch's loader gets the samples of a batch (`__getitems__`), each with random numbers of its own.

    Args:
        dataset: Gives a sample for an index.
        seed: Of the training.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __call__(self, draws: list[Draw]) -> list[Any]:
        samples = []
        with preserved_generators():
            for draw in draws:
                seed_generators(self.seed, draw.number)
                samples.append(self.dataset[int(draw)])
        return samples


def seed_samples(loader: DataLoader, seed: int) -> None:
    """Augmentation in a loader with a `ResumableBatchSampler` depends on the seed and on the sample's number alone.

    A dataset whose class has a `__getitems__` is left alone.
    """
    if not hasattr(type(loader.dataset), '__getitems__'):
        loader.dataset.__getitems__ = SeededSamples(loader.dataset, seed)
    loader.generator = torch.Generator()  # seeds of workers are not drawn from the generator of the model
