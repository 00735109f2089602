"""A server that opens detectors, predicts, checks data and trains in threads of one process."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import tokennorm
from tests.helpers.commands import as_dict
from tests.helpers.scalars import logged
from tests.helpers.settings import changed, settings
from tests.helpers.trained import CONFIG, few

FRESH = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import tokennorm
before, environment = sys.stdout, dict(os.environ)
with ThreadPoolExecutor(4) as pool:
    found = list(pool.map(lambda _: tokennorm.Detector(sys.argv[1])(sys.argv[2]).boxes.shape, range(4)))
import cv2
assert len(set(found)) == 1, found
assert sys.stdout is before
changed = {name for name, _ in os.environ.items() ^ environment.items()}
assert changed <= {'TORCHINDUCTOR_CACHE_DIR', 'LD_LIBRARY_PATH'}, changed  # by torch and OpenCV
print('opened', *found[0])
"""


def opened(work_dir, image):
    return tokennorm.Detector(work_dir)(image).boxes.tolist()


def trained(data, out):
    return tokennorm.train(CONFIG, data, epochs=1, image_size=64, out=out, seed=0, cfg_options=as_dict(few()))


def test_threads_open_one_detector(demo_trained, demo_data):
    """Reading, building and importing change the process for a moment."""
    image, before = next(demo_data.rglob('*.jpg')), settings(generators=False)
    expected = opened(demo_trained, image)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: opened(demo_trained, image), range(3)))
    assert found == [expected] * 3
    assert changed(before, generators=False) == {}


@pytest.mark.slow
def test_threads_of_a_fresh_process_open_one_detector(demo_trained, demo_data):
    command = [sys.executable, '-c', FRESH, str(demo_trained), str(next(demo_data.rglob('*.jpg')))]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith('opened ')


@pytest.mark.slow
def test_threads_open_predict_check_and_train(demo_trained, demo_data, tmp_path, without_report, capfd):
    """Two training runs do what one alone does, and each has its own files."""
    image, shared = next(demo_data.rglob('*.jpg')), tokennorm.Detector(demo_trained)
    expected, before = shared(image).boxes.tolist(), settings(generators=False)

    def trains(number):
        return trained(demo_data, tmp_path / f'run{number}').metrics

    def opens(number):
        return [opened(demo_trained, image) for _ in range(3)] == [expected] * 3

    def predicts(number):
        out = tmp_path / f'predicted{number}'
        found = tokennorm.predict(shared, image, out=out).images
        return found == 1 and all(shared(image).boxes.tolist() == expected for _ in range(5))

    def checks(number):
        found = [tokennorm.check(demo_data, out=tmp_path / f'checked{number}', num_images=2), tokennorm.check(CONFIG)]
        return found[0].ok

    jobs = [trains, trains, opens, opens, predicts, predicts, checks, checks]
    with ThreadPoolExecutor(len(jobs)) as pool:
        found = list(pool.map(lambda job, number: job(number), jobs, range(len(jobs))))
    assert found[2:] == [True] * 6
    assert changed(before, generators=False) == {}
    assert capfd.readouterr().out.count('a process has one run at a time') == 1
    losses = []
    for number in range(2):
        work_dir = tmp_path / f'run{number}'
        losses.append([entry['loss'] for entry in logged(work_dir) if 'loss' in entry])
        assert len(list(work_dir.glob('*/*.log'))) == 1
        assert len(list(work_dir.glob('best_*.pth'))) == 1
    assert len(losses[0]) == len(losses[1]) == 2
    assert losses[0][0] == losses[1][0]


def test_a_run_leaves_the_settings_of_the_process(boxes, tmp_path, without_report):
    before, frozen = settings(), gc.get_freeze_count() > 0  # counting takes longer than the rest
    trained(boxes, tmp_path)
    assert changed(before) == {}
    assert (gc.get_freeze_count() > 0) == frozen
