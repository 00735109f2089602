"""The table of docs/reference/detectors.yml: every command with every detector, on small images."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mmengine.registry import init_default_scope

from experiments.shapes import make_shapes_dataset
from tests.conftest import forget_visualizers, made_once
from tests.helpers.checkpoints import assert_same_checkpoints
from tests.helpers.commands import tool
from tests.helpers.detectors import COLUMNS, ROWS, name_data, small_config
from tests.helpers.folders import with_pentagons

SIZE = 128  # of images, in pixels
KILLED = """
import os, signal, sys
from mmengine.optim import OptimWrapper
from tokennorm.cli.train import main

steps, update = [], OptimWrapper.update_params

def update_or_die(*args, **kwargs):
    steps.append(1)
    if len(steps) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    update(*args, **kwargs)

OptimWrapper.update_params = update_or_die
main(sys.argv[1:])
"""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Four images of shapes to train on, and two to validate with, with polygons."""
    sizes = dict(num_train=4, num_val=2, image_size=SIZE)
    make = lambda at: with_pentagons(make_shapes_dataset(at / 'shapes', **sizes))  # noqa: E731
    return made_once(tmp_path_factory, 'detectors', make) / 'shapes'


def run(*words: object) -> str:
    """Runs a command; returns the error that it prints, or ''."""
    forget_visualizers()
    try:
        tool(str(words[0]))([str(word) for word in words[1:]])
    except SystemExit as error:
        return str(error.code).removeprefix('error: ') if error.code else ''
    return ''


def run_killed(*words: object) -> None:
    """Trains in a process that is killed within its second step."""
    process = subprocess.run([sys.executable, '-c', KILLED, *map(str, words)], capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr[-3000:]


def latest(work_dir: Path) -> Path:
    return Path((work_dir / 'last_checkpoint').read_text().strip())


def resumed(words: list[object], killed: Path, whole: Path) -> str:
    """Kills a training run and resumes it: the weights and the optimizer are those of the whole run, bit for bit."""
    words = [*words, '--out', killed, '--checkpoint-interval', 1]
    run_killed(*words)
    assert latest(killed).name == 'iter_1.pth'
    error = run('train', *words, '--resume')
    if not error:
        assert_same_checkpoints(latest(killed), latest(whole), 'state_dict', 'optimizer')
    return error


def cells(name: str, data: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Runs each command with a row's detector. Yields the column and the error that the command prints, or ''."""
    init_default_scope('mmdet')  # as of the tests before
    yield 'check', run('check', ROWS[name]['config'])
    plain, named, cfg = folder / 'plain.py', folder / 'named.py', small_config(name)
    cfg.dump(plain)
    name_data(cfg, data).dump(named)
    options = ['--image-size', SIZE, '--workers', 0, '--seed', 1, '--device', 'cpu', '--init', 'none']
    options += [] if 'max_iters' in cfg.train_cfg else ['--epochs', 1]
    yield 'train', run('train', named, '--out', folder / 'named', *options)
    error = run('train', plain, '--data', data, '--out', folder / 'data', *options)
    yield 'data', error
    trained = folder / ('named' if error else 'data')
    yield 'resume', resumed([named, *options], folder / 'killed', folder / 'named')
    yield 'test', run('test', trained, '--report')
    yield 'compare', run('compare', folder / 'named', trained, '--out', folder / 'compare.html')
    images, files = data / 'images' / 'val', []
    yield 'predict', run('predict', trained, images, '--out', folder / 'predicted')
    yield 'tiles', run('predict', trained, images, '--out', folder / 'tiles', '--tiles', SIZE * 3 // 4)
    for column, file, more in (
        ('export', 'any.onnx', ['--verify', data]),
        ('openvino', 'any.xml', []),
        ('one image', 'one.onnx', ['--batch-size', 1]),
    ):
        if not (error := run('export', trained, folder / file, *more)):
            files.append(folder / file)
        yield column, error
    yield 'benchmark', run('benchmark', trained, *files, '--data', data) if files else error
    yield 'publish', run('publish', trained, folder / 'published.pth')


@pytest.mark.slow
@pytest.mark.parametrize('name', ROWS)
def test_a_row_of_the_table(name, data, tmp_path, cache):
    found = dict(cells(name, data, tmp_path))
    assert list(found) == list(COLUMNS)
    kept = {column: ROWS[name].get(column, '') for column in COLUMNS}
    wrong = {column: found[column] for column in COLUMNS if not is_kept(kept[column], found[column])}
    assert not wrong, f'docs/reference/detectors.yml has for {name}: { {column: kept[column] for column in wrong} }'


def is_kept(kept: str, found: str) -> bool:
    """Returns whether an error begins with the kept text; where nothing is kept, there must be no error."""
    return found.startswith(kept) if kept else not found


@pytest.mark.parametrize('name', ['YOLOX', 'DETR'])
def test_a_config_of_the_table_is_checked(name):
    assert not run('check', ROWS[name]['config'])


def test_the_table_has_no_other_columns():
    for row in ROWS.values():
        assert set(row) <= {'config', *COLUMNS}
