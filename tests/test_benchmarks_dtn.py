"""The benchmark of DTN runs in every dtype, the T x T form included."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / 'benchmarks'


@pytest.mark.slow
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float16'])
def test_it_runs(tmp_path, dtype):
    command = [sys.executable, BENCHMARKS / 'dtn.py', '--only', 's4, 224', '--seconds', '0.05', '--threads', '1']
    done = subprocess.run([*command, '--dtype', dtype, '--out', tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'PVT s4, 224' in done.stdout
    assert list(tmp_path.glob('*.csv'))
