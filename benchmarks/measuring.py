"""Time and peak memory of a callable, on a CPU or a CUDA device.

Contenders are measured in turns, round after round, so that what else the machine does falls on all of them alike, and
the figure is the median of the rounds. Peak memory is what the calls allocate beyond what is there before them: on CUDA
the allocator's own peak, on a CPU the running sum of the allocations and frees that torch's profiler records.
"""

import csv
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

CLOCKS = {'wall': time.perf_counter, 'cpu': time.process_time}


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Has other programs compute without a pause. They end with this process, even if it is killed."""
    code = f'import os\nwhile os.getppid() == {os.getpid()}: sum(range(10**6))'
    with ExitStack() as others:
        for _ in range(count):
            other = subprocess.Popen([sys.executable, '-c', code], start_new_session=True)
            others.callback(other.kill)
        yield


def milliseconds(
    contenders: Mapping[str, Callable[[], None]],
    device: str,
    clock: str = 'wall',
    seconds: float = 3,
    rounds: int = 30,
    summary: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Median time of one call of each contender.

    Args:
        contenders: By name.
        device: 'cpu' or 'cuda'.
        clock: 'wall', or 'cpu' for the processor time of this process, which other programs disturb less. CUDA devices
            are timed with events.
        seconds: No round begins after this time, three excepted.
        rounds: At most.
        summary: Of the times of the rounds; `min` on a busy machine.
    """
    times = {name: [] for name in contenders}
    for function in contenders.values():
        function()
        function()
    start = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - start > seconds:
            break
        for name, function in contenders.items():
            times[name].append(_time_once(function, device, clock))
    return {name: summary(values) for name, values in times.items()}


def _time_once(function: Callable[[], None], device: str, clock: str) -> float:
    if device == 'cpu':
        start = CLOCKS[clock]()
        function()
        return 1e3 * (CLOCKS[clock]() - start)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def peak_mebibytes(function: Callable[[], None], device: str) -> float:
    """The largest amount of memory that is allocated at one time during a call."""
    function()
    if device != 'cpu':
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    records = [e for e in profiler.profiler.kineto_results.events() if e.name() == '[memory]']
    total = peak = 0
    for record in sorted(records, key=lambda e: e.start_ns()):
        total += record.nbytes()
        peak = max(peak, total)
    return peak / 2**20


def print_table(rows: list[dict[str, str]]) -> None:
    """Rows with the same keys, as aligned columns."""
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
    for row in ({key: key for key in rows[0]}, *rows):
        print('  '.join(row[key].rjust(width) for key, width in widths.items()), flush=True)


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', encoding='utf-8', newline='') as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f'-> {path}')
