"""The benchmarks run and print their tables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / 'benchmarks'


@pytest.mark.slow
def test_backbones_prints_time_and_memory_of_each_host():
    command = [sys.executable, BENCHMARKS / 'backbones.py', '--size', '64', '64', '--rounds', '1']
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if 'MiB' in line]
    assert [row.split('|')[1:3] for row in rows] == [
        [f' {arch} ', f' {mode} '] for arch in ('PVTv2-b1', 'Swin-T') for mode in ('forward', 'forward + backward')
    ]
    for row in rows:
        numbers = [float(number) for number in re.findall(r'([\d.]+) (?:ms|MiB)', row)]
        assert len(numbers) == 6
        assert min(numbers) > 0
