"""The cores that a process may use, and the threads of PyTorch."""

import importlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

THREADS = 'OMP_NUM_THREADS', 'MKL_NUM_THREADS'  # in which users choose the number of PyTorch's threads
_OCTAL = re.compile(r'\\([0-7]{3})')  # space, tab, newline and backslash in mountinfo
STAT = Path('/proc/stat')  # ticks of each core in user, nice, system, idle, iowait, irq, softirq, steal


def logical_cores() -> int:
    """Returns the number of logical cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def available_cores() -> int:
    """Returns the number of logical cores that this process has processor time for."""
    return min(logical_cores(), container_cores() or logical_cores())


def container_cores(proc: Path = Path('/proc/self')) -> int | None:
    """Returns how many cores' time a container has, such as of `docker run --cpus 2`; None without a limit.

    PyTorch would take a thread for each core of the machine. The limit is the lowest of this process's control group
    and of the groups around it, in versions 1 and 2 of Linux's control groups.
    """
    limits = [limit for folder in _control_groups(proc) if (limit := _limit_of(folder)) is not None]
    return max(1, int(min(limits))) if limits else None


def _control_groups(proc: Path) -> Iterator[Path]:
    """Yields the folders of the groups that can limit the processor time of a process, inner ones first."""
    try:
        # Names of other mounts and groups have any bytes.
        mounts, groups = (os.fsdecode((proc / name).read_bytes()).split('\n') for name in ('mountinfo', 'cgroup'))
    except OSError:  # not Linux
        return
    paths = {
        name: path for _, names, path in (line.split(':', 2) for line in groups if line) for name in names.split(',')
    }
    for line in (line for line in mounts if ' - cgroup' in line):
        before, _, after = line.partition(' - ')
        root, place = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), path) for path in before.split()[3:5])
        kind, *_, options = after.split()
        if kind == 'cgroup2':
            path = PurePosixPath(paths.get('', ''))
        elif kind == 'cgroup' and 'cpu' in options.split(','):
            path = PurePosixPath(paths.get('cpu', ''))
        else:
            continue
        folder = Path(place, path.relative_to(root) if path.is_relative_to(root) else '')
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(place))


def _limit_of(group: Path) -> float | None:
    """Returns the cores' time of a control group: its microseconds of processor time in a period, and the period."""
    for names in (['cpu.max'], ['cpu.cfs_quota_us', 'cpu.cfs_period_us']):
        try:
            quota, period = map(int, ' '.join((group / name).read_text('ascii') for name in names).split())
        except (OSError, ValueError):  # no such file, or `max`
            continue
        return quota / period if quota > 0 and period > 0 else None
    return None


class OtherPrograms:
    """The cores of this process that other programs have kept busy since this object was made.

    Load averages would still count the training run that ended a moment ago.
    """

    def __init__(self) -> None:
        self._begin = self._now()

    def cores(self) -> float:
        """Returns their number; 0 where the system is not Linux."""
        seconds, busy = (now - begin for now, begin in zip(self._now(), self._begin, strict=True))
        return max(0.0, busy / seconds) if seconds else 0.0

    @staticmethod
    def _now() -> tuple[float, float]:
        """Returns a time, and the processor time of other programs until then, in seconds."""
        try:
            lines = [line.split() for line in STAT.read_text('ascii').splitlines()]
            own = {f'cpu{core}' for core in os.sched_getaffinity(0)}
            kinds = [1, 3, 6, 7, 8] + [2] * (os.nice(0) > 0)  # niced programs leave the cores to those that are not
            ticks = sum(int(line[kind]) for line in lines if line[0] in own for kind in kinds)
            return time.monotonic(), ticks / os.sysconf('SC_CLK_TCK') - sum(os.times()[:4])
        except (OSError, AttributeError):
            return 0.0, 0.0


def let_threads_sleep() -> None:
    """Has OpenMP's threads sleep after about 50 us of waiting. What the user has set stays.

    By default they spin for long. Where another program has the cores, each parallel operation then waits for threads
    that the spinning ones keep from running. It has an effect only before PyTorch is imported.
    """
    if not {'GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'} & os.environ.keys():
        os.environ['GOMP_SPINCOUNT'] = '1000'


def chosen_threads() -> str | None:
    """Returns the user's number of PyTorch's threads, or None."""
    return next(filter(None, map(os.environ.get, THREADS)), None)


def limit_threads() -> None:
    """Has PyTorch compute with as many threads as a container has processor time for, unless the user has set them.

    Nothing is written to the environment, in which the user's number is looked for.
    """
    if chosen_threads() is None and (cores := container_cores()) is not None:
        torch = importlib.import_module('torch')
        torch.set_num_threads(min(cores, torch.get_num_threads()))
