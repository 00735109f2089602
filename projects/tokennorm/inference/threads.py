"""Threads that read and write files while the detector runs: OpenCV decodes and draws without Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tokennorm.base.cores import available_cores

THREADS = min(4, available_cores())
Item = TypeVar('Item')
Value = TypeVar('Value')


def in_threads(function: Callable[[Item], Value], items: Iterable[Item], threads: int = THREADS) -> Iterator[Value]:
    """Yields `function(item)` of each item, in order, while threads compute at most `threads` of the next ones."""
    values: deque[Future[Value]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            values.append(pool.submit(function, item))
            if len(values) > threads:
                yield values.popleft().result()
        while values:
            yield values.popleft().result()
