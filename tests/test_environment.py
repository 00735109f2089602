"""Faults of the environment are found without any package installed."""

import os
import subprocess
import sys
from pathlib import Path

from tokennorm import environment


def test_runs_without_any_package():
    """-S hides site-packages, as in a fresh environment."""
    command = [sys.executable, '-S', '-m', 'tokennorm.cli.check_env']
    variables = {**os.environ, 'PYTHONPATH': str(Path(environment.__file__).parents[1])}
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.returncode == 1, process.stderr
    assert 'FAIL  packages: not installed: torch, ' in process.stdout
