"""What belongs to the whole process, and is changed for a while: by one thread at a time, and put back.

mmengine's registries have one current scope, torch one list of classes that may be read, Python one standard output and
one list of filters for warnings. Whatever opens, reads, builds or exports does so `alone`.
"""

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.RLock()


def _renew() -> None:
    """In a forked data worker: the thread that held the lock does not exist."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def alone() -> Iterator[None]:
    """No other thread is inside such a block. A thread may nest them."""
    with _lock:
        yield


class _Muted:
    """A standard output that drops what one thread prints."""

    def __init__(self, stream: Any) -> None:
        self.stream: Any = stream
        self.thread: int | None = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def muted() -> Iterator[None]:
    """What this thread prints inside is dropped; other threads print."""
    with alone():
        before, muted = sys.stdout, _Muted(sys.stdout)
        sys.stdout = before and muted
        try:
            yield
        finally:
            muted.thread = None  # who has taken it meanwhile prints, too
            if sys.stdout is muted:
                sys.stdout = before


@contextmanager
def without_warnings() -> Iterator[None]:
    """Warnings are ignored inside."""
    with alone(), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        yield


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage is collected inside: among a million new objects that stay, searches take as long as the rest."""
    with alone():
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
