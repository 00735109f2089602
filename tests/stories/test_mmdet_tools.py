"""mmdet's own tools/train.py and tools/test.py run the configs, without an import of the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mmdet
import pytest

import tokennorm
from tests.helpers.trained import CONFIG, options

TOOLS = Path(mmdet.__file__).parent / '.mim' / 'tools'


@pytest.mark.slow
def test_mmdet_tools_train_and_test_the_demo(demo_data, tmp_path):
    def run(name, *arguments):
        command = [TOOLS / f'{name}.py', CONFIG, *arguments, '--work-dir', tmp_path]
        done = subprocess.run(
            [sys.executable, *command, '--cfg-options', *options(demo_data)],
            cwd=tmp_path,
            env=os.environ | dict(PYTHONPATH=str(Path(tokennorm.__file__).parents[1])),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    output = run('train')
    (advice,) = (line for line in output.splitlines() if 'report.html was not written' in line)
    assert '`tokennorm test CONFIG WORK_DIR --report` writes a report' in advice
    logged = [json.loads(line) for line in next(tmp_path.glob('*/vis_data/scalars.json')).open()]
    trained = logged[-1]['coco/bbox_mAP']
    output = run('test', tmp_path / 'epoch_1.pth')
    assert f'coco/bbox_mAP: {trained:.4f}' in output
