"""Processor time of commands from start to end, each in a process of its own, in turns.

python benchmarks/start.py 'tokennorm predict WORK_DIR IMAGE' 'tokennorm predict MODEL.onnx IMAGE' [--rounds 7]
"""

import argparse
import os
import shlex
import statistics
import subprocess


def processor_time(command: str) -> float:
    """Seconds of a process with its children, one thread per operation."""
    env = os.environ | dict(OMP_NUM_THREADS='1')
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f'{command} ended with status {status}')
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('commands', nargs='+')
    parser.add_argument('--rounds', type=int, default=7)
    args = parser.parse_args()
    times = [[processor_time(command) for command in args.commands] for _ in range(args.rounds)]
    for command, seconds in zip(args.commands, zip(*times, strict=True), strict=True):
        ratio = statistics.median(one / first for one, (first, *_) in zip(seconds, times, strict=True))
        print(f'{statistics.median(seconds):5.2f} s, {ratio:.2f} of the first: {command}')


if __name__ == '__main__':
    main()
