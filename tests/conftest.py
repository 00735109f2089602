"""Shared fixtures: seeds, threads, trained and exported detectors, and the optional cases next to the repository.

Nothing here imports torch or mmdet before a test asks for it: rooms that need neither start in a second.
"""

import functools
import gc
import logging
import os
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

# One thread per process: pytest-xdist starts one process per core. OpenMP reads this before torch is imported.
os.environ['OMP_NUM_THREADS'] = '1'

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from tests.helpers.plain import plain_config, plain_figures
from tests.helpers.trained import without_report  # noqa: F401 - a fixture

if os.environ.get('CUDA_VISIBLE_DEVICES') == '' or not (Path('/dev/nvidia0').exists() or Path('/dev/dxg').exists()):
    # Triton's kernels run in its interpreter then, which has to be known before anything imports Triton.
    os.environ.setdefault('TRITON_INTERPRET', '1')

sys.path.append(str(Path(__file__).resolve().parents[1] / 'tools'))  # which Python does for a program there
SLOW = 6  # seconds of processor time; two to three times what the slowest test takes, for slower machines
PUBLISHED_CASES = Path(__file__).resolve().parents[2] / 'shared' / 'fixtures'


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imports make a million objects that stay: garbage is neither looked for meanwhile nor among them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def processor_time():
    """Seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fails a test that is slow without the mark. Among few tests the first one pays for imports, and none fails."""
    before = processor_time()
    result = yield
    taken = processor_time() - before
    if taken > SLOW and item.session.testscollected > 500 and not item.get_closest_marker('slow'):
        pytest.fail(
            f'{taken:.1f} s of processor time, and a test without the mark slow has {SLOW} s (SLOW in '
            'tests/conftest.py): make it cheaper, or mark it and leave a fast test of its kind',
            pytrace=False,
        )
    return result


@functools.cache
def has_compiler():
    """Returns whether a C++ compiler runs, which DTN's CPU kernel and torch's inductor need."""
    from tokennorm.ops.cpu.build import find_compiler

    try:
        return subprocess.run([*find_compiler(), '--version'], capture_output=True).returncode == 0
    except (RuntimeError, OSError):
        return False


@pytest.fixture(autouse=True)
def skip_without_compiler(request):
    """Skips tests with the mark `compiler` where there is none."""
    if request.node.get_closest_marker('compiler') and not has_compiler():
        pytest.skip('no C++ compiler')


@pytest.fixture(scope='session', autouse=True)
def metafiles_are_read_once():
    """mmengine parses every metafile of mmdet, 408 files, once per `mmdet::` config."""
    if 'mmengine' not in sys.modules:  # a room that needs none
        yield
        return
    import mmengine.config.utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('mmengine.config.utils.load', functools.cache(mmengine.config.utils.load))
        yield


@pytest.fixture
def plain_files():
    """Configs and reports without layout, of tests that do not look at it."""
    with plain_config(), plain_figures() if 'mmengine' in sys.modules else nullcontext():  # which imports matplotlib
        yield


@pytest.fixture
def quick_workers(monkeypatch):
    """Workers of a discarded data loader notice it at once: torch waits up to five seconds for each."""
    monkeypatch.setattr('torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL', 0.1)
    yield
    gc.collect()  # while the interval is this one


@pytest.fixture(autouse=True)
def seed():
    if 'torch' in sys.modules:
        sys.modules['torch'].manual_seed(0)


@pytest.fixture(autouse=True)
def fresh_visualizer():
    """mmengine keeps the visualizers of a process for good, and hooks take the one that came last."""
    forget_visualizers()
    yield
    forget_visualizers()


def forget_visualizers():
    """Also releases mmengine's lock, which it keeps where the constructor of one raises: other threads would wait."""
    if 'mmengine.utils.manager' in sys.modules:
        with suppress(RuntimeError):  # not held
            while True:
                sys.modules['mmengine.utils.manager']._lock.release()
    if 'mmengine.visualization' in sys.modules:
        visualizer = sys.modules['mmengine.visualization'].Visualizer
        for kind in (visualizer, *visualizer.__subclasses__()):
            kind._instance_dict.clear()


def made_once(tmp_path_factory, name, make):
    """A folder that the first worker of pytest-xdist makes by `make(folder)`, and that the others wait for."""
    of_worker = tmp_path_factory.getbasetemp()
    folder = (of_worker.parent if 'PYTEST_XDIST_WORKER' in os.environ else of_worker) / 'shared' / name
    folder.mkdir(parents=True, exist_ok=True)
    made = folder.with_name(f'{name}.made')
    with FileLock(folder.with_name(f'{name}.lock')):
        if not made.exists():
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope='session')
def demo_data(tmp_path_factory):
    """Four images of shapes to train on, and three to validate with: nothing writes to them."""
    from experiments.shapes import make_shapes_dataset

    sizes = dict(num_train=4, num_val=3, image_size=64)
    return made_once(tmp_path_factory, 'data', lambda at: make_shapes_dataset(at / 'shapes', **sizes)) / 'shapes'


@pytest.fixture(scope='session')
def boxes(tmp_path_factory):
    """The same kind of data with boxes only."""
    from experiments.shapes import make_shapes_dataset
    from tests.helpers.coco_files import edit

    root = tmp_path_factory.mktemp('boxes')
    make_shapes_dataset(root, num_train=4, num_val=2, image_size=64)
    for split in ('train', 'val'):
        edit(root, split, lambda content: [annotation.pop('segmentation', 0) for annotation in content['annotations']])
    return str(root)


@pytest.fixture(scope='session')
def coco(tmp_path_factory):
    """A COCO folder of shapes with polygons, to write other formats from."""
    from experiments.shapes import make_shapes_dataset
    from tests.helpers.folders import with_pentagons

    root = tmp_path_factory.mktemp('coco') / 'shapes'
    return with_pentagons(make_shapes_dataset(root, num_train=8, num_val=4, image_size=64))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder for converted annotations, which is the user's otherwise."""
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


@pytest.fixture(scope='session')
def demo_trained(demo_data, tmp_path_factory):
    """The work directory of one epoch on them, for several modules: nothing writes to it."""
    from tests.helpers.commands import tool
    from tests.helpers.trained import CONFIG, options

    words = ['--cfg-options', *options(demo_data)]
    with plain_config(), plain_figures():
        return made_once(tmp_path_factory, 'work', lambda at: tool('train')([CONFIG, '--work-dir', str(at), *words]))


@pytest.fixture(scope='session')
def exported(tmp_path_factory):
    """RetinaNet with one feature map, and its ONNX file for one size: a graph for any size takes ten times as long."""
    import torch

    from tests.helpers.exporting import build, config, write

    logging.getLogger('torch.__trace').setLevel(logging.WARNING)  # pytest would format thousands of records
    torch.manual_seed(0)
    cfg = config(strides=(4,))
    cfg.model.neck = None
    model = build(cfg)
    folder = made_once(tmp_path_factory, 'export', lambda at: write(cfg, model, at / 'tiny.onnx', dynamic=False))
    return model, folder / 'tiny.onnx'


@pytest.fixture
def kernel_calls(monkeypatch):
    """Names of the functions of DTN's CPU kernel that were called."""
    from tokennorm.ops.cpu import kernel

    calls = []
    call = kernel._call

    def record(function, *args, **others):
        calls.append(function)
        call(function, *args, **others)

    monkeypatch.setattr(kernel, '_call', record)
    return calls


@pytest.fixture
def published_case():
    """Loads a numeric case of the published code, made outside this repository; skips where there is none."""

    import torch

    def load(name):
        path = PUBLISHED_CASES / name
        if not path.is_file():
            pytest.skip(f'{name} is not at hand')
        with np.load(path) as arrays:
            return {key: torch.from_numpy(v) if v.ndim else v.item() for key, v in arrays.items()}

    return load


@pytest.fixture
def root(tmp_path, cache):
    """A folder with four images of 96 x 64 pixels per split, in train and val."""
    for i in range(8):
        path = tmp_path / 'data' / ('train' if i < 4 else 'val') / f'{i}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 255, (64, 96, 3), np.uint8)
        Image.fromarray(pixels).save(path, compress_level=0)
    return tmp_path / 'data'


@pytest.fixture(scope='session')
def model_file(tmp_path_factory):
    """An exported detector that finds the same in every image."""
    from tests.helpers.handmade_onnx import write_handmade

    return write_handmade(tmp_path_factory.mktemp('model') / 'model.onnx')


@pytest.fixture
def images(tmp_path):
    """A folder with three images, one of them gray."""
    for name, size in (('a.png', (96, 64)), ('b/c.png', (48, 32)), ('b/gray.png', (96, 64))):
        (tmp_path / 'in' / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('L' if 'gray' in name else 'RGB', size).save(tmp_path / 'in' / name)
    return tmp_path / 'in'
