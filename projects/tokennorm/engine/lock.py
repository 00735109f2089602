"""Locks of a run: on the process, whose settings it changes, and on its work directory."""

import errno
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cv2
import mmengine.device.utils as mmengine_device
import numpy as np
import torch
from filelock import FileLock, Timeout
from matplotlib import rcParams
from mmengine.hooks import Hook
from torch import multiprocessing

from tokennorm.base.files import make_output_dir
from tokennorm.base.messages import UserError
from tokennorm.base.process import alone
from tokennorm.base.ranks import is_first_process, print_once
from tokennorm.config.detector_files import LOCK
from tokennorm.engine.resume.random_state import random_state, set_random_state
from tokennorm.registry.compat import release_mmengines_lock

PATIENCE = 10  # seconds: data workers of a killed run hold its lock until they notice its end
_NO_LOCKS = errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS  # a file system without locks, such as some of networks

_run = threading.RLock()  # a hook of a training run may evaluate


class BuiltHook(Hook):
    """Calls a function when the runner is built and the first batch follows."""

    priority = 'LOWEST'

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def before_train(self, runner: Any) -> None:
        self.function()

    before_test = before_train


@contextmanager
def one_run(seeded: bool = True) -> Iterator[BuiltHook]:
    """One training run or evaluation of a process at a time, which changes settings of the process that are put back.

    mmengine has one current logger, message hub and scope, and draws from generators of the process. Another thread
    waits, and prints a line first.

    Args:
        seeded: Whether the run has a seed. The next run without one has another.

    Yields:
        A hook for the runner: until it is called, no other thread opens or builds.
    """
    if not _run.acquire(blocking=False):
        print_once(
            'Another thread trains or evaluates, and a process has one run at a time: this one waits until that ends. '
            'Start it in a process of its own to have both at once'
        )
        _run.acquire()
    try:
        with _restored_settings(seeded), ExitStack() as building:
            building.enter_context(alone())
            yield BuiltHook(building.close)
    finally:
        release_mmengines_lock()
        _run.release()


@contextmanager
def _restored_settings(seeded: bool) -> Iterator[None]:
    """Puts back what mmengine sets for a run, `use_device` and `names_for_matplotlib`."""
    numbers, files = random_state(cuda=False), resource.getrlimit(resource.RLIMIT_NOFILE)
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn, device, fonts = torch.backends.cudnn, mmengine_device.DEVICE, rcParams['font.sans-serif']
    benchmark, exact, threads = cudnn.benchmark, cudnn.deterministic, cv2.getNumThreads()
    method = multiprocessing.get_start_method(allow_none=True)
    gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        set_random_state(numbers)
        if not seeded:
            np.random.random()  # noqa: NPY002 - from which mmengine draws the next seed
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        cudnn.benchmark, cudnn.deterministic = benchmark, exact
        mmengine_device.DEVICE, rcParams['font.sans-serif'] = device, fonts
        cv2.setNumThreads(threads)
        multiprocessing.set_start_method(method, force=True)
        if gpu is not None:
            torch.cuda.set_device(gpu)


@contextmanager
def locked_work_dir(work_dir: str | Path) -> Iterator[None]:
    """Holds an exclusive lock on a work directory. Ranks of one run share it. The OS releases it with the process."""
    if not is_first_process():
        yield
        return
    make_output_dir(work_dir)
    lock = FileLock(Path(work_dir, LOCK), timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f'{work_dir} is in use by another training run. Wait for its end, or use another --out'
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
