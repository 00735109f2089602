"""The main job as a user runs it: minutes on two cores."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / 'tools' / 'demo.py'


@pytest.mark.slow
@pytest.mark.parametrize('arguments', [[], ['--control']], ids=['dtn-dpn', 'control'])
def test_demo_reaches_its_ap_and_leaves_pictures(arguments, tmp_path):
    run = subprocess.run([sys.executable, DEMO, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    work_dir = tmp_path / 'work_dirs' / ('demo-control' if arguments else 'demo')
    ap = float(re.search(r'COCO AP at the end: ([\d.]+)', run.stdout).group(1))
    assert ap >= 43  # 46.4 and 47.1 on two processors, which round differently
    assert 'coco/bbox_mAP' in run.stdout
    for name in ('report.html', 'predictions.png'):
        assert (work_dir / name).is_file()
