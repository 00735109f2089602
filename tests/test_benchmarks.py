"""The benchmarks run and print their tables."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / 'benchmarks'


@pytest.mark.slow
def test_backbones_prints_time_and_memory_of_each_host():
    command = [sys.executable, BENCHMARKS / 'backbones.py', '--size', '64', '64', '--rounds', '1', '--only', 'PVT']
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if 'MiB' in line]
    assert [row.split('|')[1:3] for row in rows] == [
        [f' {arch} ', f' {mode} '] for arch in ('PVT-T', 'PVTv2-B1') for mode in ('forward', 'forward + backward')
    ]
    for row, hosts in zip(rows, (2, 2, 3, 3), strict=True):
        numbers = [float(number) for number in re.findall(r'([\d.]+) (?:ms|MiB)', row)]
        assert len(numbers) == 2 * hosts
        assert min(numbers) > 0


def test_soak_finds_growth_and_a_steady_saw():
    """Nor is it growth when the lower of two levels is left for good; a slope of 4.5 % over the time is."""
    growth = runpy.run_path(str(BENCHMARKS / 'soak.py'))['growth']
    saw = [(float(i), 1000 + 100 * (i % 7 == 0 or i > 400) + (i < 100) * (i - 100)) for i in range(600)]
    assert abs(growth(saw, 100)) < 0.001
    slope = [(seconds, value * (1 + 0.05 * max(seconds - 100, 0) / 500)) for seconds, value in saw]
    assert 0.04 < growth(slope, 100) < 0.05
    with pytest.raises(ValueError, match='warm_up=595 leaves 5 of 600 samples'):
        growth(saw, 595)
