"""An hour of training the demo detector: does memory grow? Prints a verdict and draws the curve.

    python benchmarks/soak.py --data data/shapes [--minutes 60] [--out work_dirs/soak]

Trains by tools/train.py with evaluation and a checkpoint every few epochs until the time is over, and reads from /proc,
every few seconds, the memory that the training and its data workers have asked for: anonymous and shared memory, pages
that processes share counted once. (Pages of files, such as libraries, are left out: the kernel drops and reads them as
it likes.) Compared are the 90th percentiles of the first and the last fifth of the time after the warm-up: peaks, since
an allocator that gives back what was freed, or keeps it, makes the median jump. What leaks is in the peaks too. Linux.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / 'configs' / 'demo' / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'
MOST_GROWTH = 0.02
MANY_EPOCHS = 100_000
Samples = list[tuple[float, float]]  # seconds since the start, MiB


def processes_below(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        children = Path(f'/proc/{pid}/task/{pid}/children').read_text(encoding='utf-8').split()
    except OSError:
        return [pid]
    return [pid] + [below for child in children for below in processes_below(int(child))]


def mebibytes(pid: int) -> float:
    """Anonymous and shared memory of a process and its descendants, by proportional set sizes."""
    total = 0
    for process in processes_below(pid):
        try:
            text = Path(f'/proc/{process}/smaps_rollup').read_text(encoding='utf-8')
        except OSError:  # it has just ended
            continue
        total += sum(map(int, re.findall(r'^Pss_(?:Anon|Shmem):\s+(\d+) kB', text, re.MULTILINE)))
    return total / 1024


def growth(samples: Samples, warm_up: float) -> float:
    """The 90th percentile of the last fifth of the time after the warm-up, relative to that of the first, less 1.

    Args:
        samples: In the order of time.
        warm_up: Seconds.

    Raises:
        ValueError: where fewer than ten samples come after the warm-up.
    """
    after = [value for seconds, value in samples if seconds >= warm_up]
    if len(after) < 10:
        raise ValueError(f'warm_up={warm_up} leaves {len(after)} of {len(samples)} samples, at least 10 are needed')
    fifth = len(after) // 5
    first, last = (statistics.quantiles(part, n=10)[-1] for part in (after[:fifth], after[-fifth:]))
    return last / first - 1


def draw(path: Path, samples: Samples, warm_up: float, verdict: str) -> None:
    figure = Figure(figsize=(8, 4), layout='constrained')
    axes = figure.subplots()
    axes.plot([seconds / 60 for seconds, _ in samples], [value for _, value in samples])
    axes.axvspan(0, warm_up / 60, color='0.9', label='warm-up')
    axes.set(xlabel='minutes', ylabel='memory of all processes, MiB', ylim=(0, None), title=verdict)
    axes.legend(loc='lower right')
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data', required=True, help="the demo's dataset: tools/make_dataset.py")
    parser.add_argument('--minutes', type=float, default=60)
    parser.add_argument('--warm-up', type=float, help='minutes; default: a sixth of all')
    parser.add_argument('--every', type=float, default=5, help='seconds between two samples')
    parser.add_argument('--val-interval', type=int, default=3, help='epochs between two evaluations')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/soak'))
    args = parser.parse_args()
    warm_up = 60 * (args.minutes / 6 if args.warm_up is None else args.warm_up)
    args.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, ROOT / 'tools' / 'train.py', CONFIG, '--data', args.data, '--work-dir', args.out]
    options = [
        f'train_cfg.max_epochs={MANY_EPOCHS}',
        f'train_cfg.val_interval={args.val_interval}',
        f'default_hooks.checkpoint.interval={args.val_interval}',
    ]
    samples = []
    with (args.out / 'train.log').open('w') as log:
        training = subprocess.Popen([*command, '--cfg-options', *options], stdout=log, stderr=log)
        start = time.monotonic()
        try:
            while time.monotonic() - start < 60 * args.minutes and training.poll() is None:
                samples.append((time.monotonic() - start, mebibytes(training.pid)))
                time.sleep(args.every)
        finally:
            ended_early = training.poll() is not None
            for process in reversed(processes_below(training.pid)):
                if not ended_early:
                    os.kill(process, signal.SIGKILL)
            training.wait()
    if ended_early:
        raise SystemExit(f'error: the training ended before its time, see {args.out / "train.log"}')
    evaluations = (args.out / 'train.log').read_text().count('coco/bbox_mAP: ')
    grown = growth(samples, warm_up)
    verdict = (
        f'{grown:+.1%} after a warm-up of {warm_up / 60:.1f} of {args.minutes:g} minutes, {evaluations} evaluations: '
        f'{"steady" if grown < MOST_GROWTH else "GROWS"}'
    )
    draw(args.out / 'memory.png', samples, warm_up, verdict)
    (args.out / 'memory.csv').write_text('seconds,MiB\n' + ''.join(f'{s:.1f},{v:.1f}\n' for s, v in samples))
    print(f'{verdict}\n-> {args.out / "memory.png"}')
    raise SystemExit(grown >= MOST_GROWTH)


if __name__ == '__main__':
    main()
