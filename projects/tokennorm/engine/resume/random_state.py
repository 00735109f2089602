"""The random generators of Python, NumPy and torch: saved, restored, and seeded for a while."""

# ruff: noqa: NPY002 - mmdet and mmcv draw from NumPy's global generator

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

RandomState = dict[str, Any]


def random_state() -> RandomState:
    """Returns tensors, numbers, strings and tuples only, so that reading a checkpoint with it runs no code."""
    name, keys, *rest = np.random.get_state()
    state = dict(
        python=random.getstate(),
        numpy=(name, torch.from_numpy(keys.astype(np.int64)), *rest),
        torch=torch.get_rng_state(),
    )
    if torch.cuda.is_available():
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


class Generators:
    """CPU generators of their own inside `with`, seeded with numbers; each `with` continues the one before.

    Outside, the generators continue as if nothing had been drawn.
    """

    def __init__(self, *numbers: int) -> None:
        with seeded(*numbers):
            self._inside = _cpu_state()

    def __enter__(self) -> None:
        self._outside = _cpu_state()
        _set_cpu_state(self._inside)

    def __exit__(self, *error: object) -> None:
        self._inside = _cpu_state()
        _set_cpu_state(self._outside)


@contextmanager
def seeded(*numbers: int) -> Iterator[None]:
    """Inside, the CPU generators are seeded with the numbers. Afterwards they continue as if nothing had been drawn."""
    with preserved_generators():
        seed_generators(*numbers)
        yield


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Afterwards the CPU generators continue as if nothing had been drawn inside."""
    before = _cpu_state()
    try:
        yield
    finally:
        _set_cpu_state(before)


def seed_generators(*numbers: int) -> None:
    """Seeds the CPU generators with numbers, a tenth of the time that saving and restoring them takes."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def _cpu_state() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_cpu_state(state: tuple[Any, ...]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])
