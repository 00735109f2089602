"""Image files: what is data, and sizes as training reads them."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from experiments.shapes import make_shapes_dataset
from tests.helpers.judging import codes
from tokennorm.datasets import image_files
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.image_files import list_files, list_images, open_image
from tokennorm.findings import RULES, Findings, judging


@pytest.fixture(scope='module')
def sound(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=8, num_val=6, image_size=48)


@pytest.fixture
def data(sound, tmp_path):
    """A copy of a sound dataset, to damage."""
    return shutil.copytree(sound, tmp_path / 'data')


def inspect(root):
    with judging(Findings()) as found:
        inspected = inspect_splits(find_splits(root))
    return inspected, found


def encoded(image, kind, **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def test_what_is_data(root):
    expected = list_files(root)
    for name in ('.hidden', '__MACOSX', '@eaDir', '.ipynb_checkpoints'):
        (root / name).mkdir()
        os.link(root / 'train' / '0.png', root / name / '0.png')
    os.link(root / 'train' / '0.png', root / 'train' / '._0.png')
    for i in range(40):  # 2**40 ways through links
        (root / 'train' / f'loop{i}').symlink_to(root, target_is_directory=True)
    assert list_files(root) == expected
    (root / 'train' / '0.png').rename(root / 'train' / '0.JFIF')
    assert root / 'train' / '0.JFIF' in list_images(root)


@pytest.mark.parametrize('many', [5000, 1], ids=['threads', 'processes'])
def test_image_files(data, many, monkeypatch):
    monkeypatch.setattr(image_files, 'MANY', many)
    images = json.loads((data / 'annotations/train.json').read_text())['images']
    names = [image['file_name'] for image in images]
    paths = [data / 'images' / 'train' / name for name in names]
    paths[0].unlink()
    paths[1].write_bytes(b'')
    paths[5].write_bytes(b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n')
    paths[2].write_bytes(paths[2].read_bytes()[:-200])
    cv2.imwrite(str(paths[3]), np.zeros((32, 48, 3), np.uint8))
    paths[4].write_bytes(paths[4].read_bytes() + b'tail' * 50)  # bytes behind the end do no harm
    _, found = inspect(data)
    assert codes(found) == ['unreadable-image'] * 3 + ['image-size']
    place = f'in {data}/images/train'
    assert [(one.text, one.items) for one in found] == [
        (f'image files missing {place}', (names[0],)),
        (
            f'image files that cannot be used (it cannot be decoded) {place}',
            (names[1], names[2]),
        ),
        (
            f'image files that are pointers of Git LFS (`git lfs pull` gets them) {place}',
            (names[5],),
        ),
        (RULES['image-size'].summary, (f'{names[3]} (48x32, annotated 48x48)',)),
    ]


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'WEBP', 'TIFF'])
@pytest.mark.parametrize('orientation', [1, 3, 4, 5, 6, 8])
def test_sizes_are_those_that_training_reads(tmp_path, kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / 'a').write_bytes(encoded(Image.new('RGB', (40, 24)), kind, exif=exif))
    assert open_image(tmp_path / 'a')[:3] == ('', (40, 24) if orientation < 5 else (24, 40), orientation > 1)


@pytest.mark.skipif(sys.platform != 'linux', reason='threads open the files elsewhere')
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
def test_processes_that_open_files_end_with_their_parent(tmp_path, number):
    code = (
        'import os, time\n'
        'from tokennorm.datasets import image_files\n'
        'image_files.MANY = 2\n'
        'def work(item):\n'
        f'    open({str(tmp_path)!r} + f"/{{os.getpid()}}", "w").close()\n'
        '    time.sleep(600)\n'
        'list(image_files.map_files(work, list(range(200)), "Images"))\n'
    )
    with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.DEVNULL) as process:
        begin = time.monotonic()
        while not (started := sorted(int(path.name) for path in tmp_path.iterdir())):
            assert time.monotonic() < begin + 60
            time.sleep(0.1)
        process.send_signal(number)
        process.wait()
    end = time.monotonic() + 10
    while any(map(_is_running, started)) and time.monotonic() < end:
        time.sleep(0.1)
    still = [number for number in started if _is_running(number)]
    for left in still:
        os.kill(left, signal.SIGKILL)
    assert not still


def _is_running(number):
    with suppress(OSError):
        return Path(f'/proc/{number}/stat').read_text(encoding='utf-8').rpartition(')')[2].split()[0] != 'Z'
    return False
