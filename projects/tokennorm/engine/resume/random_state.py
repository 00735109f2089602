"""The random generators of Python, NumPy and torch: saved, restored, and seeded for a while."""

# ruff: noqa: NPY002 - mmdet and mmcv draw from NumPy's global generator

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

RandomState = dict[str, Any]


def random_state(cuda: bool = True) -> RandomState:
    """Returns tensors, numbers, strings and tuples only, so that reading a checkpoint with it runs no code."""
    name, keys, *rest = np.random.get_state()
    state = dict(
        python=random.getstate(),
        numpy=(name, torch.from_numpy(keys.astype(np.int64)), *rest),
        torch=torch.get_rng_state(),
    )
    if cuda and torch.cuda.is_available():
        state['cuda'] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: RandomState) -> None:
    """Restores a `random_state`, whose tensors may be on any device."""
    random.setstate(state['python'])
    name, keys, *rest = state['numpy']
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state['torch'].cpu())
    if 'cuda' in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state['cuda'].cpu())


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Afterwards the CPU generators continue as if nothing had been drawn inside."""
    before = random_state(cuda=False)
    try:
        yield
    finally:
        set_random_state(before)


def seed_generators(*numbers: int) -> None:
    """Seeds the CPU generators with numbers, a tenth of the time that saving and restoring them takes."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
