"""Cases of parametrized tests."""

from collections.abc import Iterable

import pytest


def slow(*values: object) -> object:
    """A case that only `-m slow` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def fast_first(names: Iterable[str], *fast: str) -> list[object]:
    """All names as cases; those that are not `fast` are slow."""
    names = list(names)
    assert set(fast) <= set(names), set(fast) - set(names)
    return [name if name in fast else slow(name) for name in names]
