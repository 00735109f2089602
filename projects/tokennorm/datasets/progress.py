"""Progress bar of long loops over files."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

T, Result = TypeVar('T'), TypeVar('Result')

_SHOWN_FROM = 5000  # items
_BATCH = 1024  # items that wait in the pool


def map_files(function: Callable[[T], Result], items: Sequence[T], what: str) -> Iterator[Result]:
    """Results of a function for each item, in their order, computed in threads.

    A progress bar is shown for many items, on a terminal only.
    """
    with ThreadPoolExecutor() as pool:
        rest = iter(items)
        batches = iter(lambda: list(islice(rest, _BATCH)), [])
        yield from track((result for batch in batches for result in pool.map(function, batch)), len(items), what)


def track(items: Any, count: int, what: str) -> Any:
    """The items, with a progress bar if there are many."""
    if count < _SHOWN_FROM:
        return items
    from rich.progress import track as rich_track

    return rich_track(items, what, total=count)
