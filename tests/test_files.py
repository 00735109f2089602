"""tokennorm.files: readers see the old file or the new one, whoever writes."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tokennorm.files import write_atomically


def write(path, byte):
    for _ in range(20):
        write_atomically(path, bytes([byte]) * 2**20)


def test_two_writers_of_one_file(tmp_path):
    path = tmp_path / 'epoch_1.pth'
    with ProcessPoolExecutor(2, get_context('fork')) as pool:
        for task in [pool.submit(write, path, byte) for byte in (1, 2)]:
            task.result(timeout=120)
    content = path.read_bytes()
    assert (len(content), len(set(content))) == (2**20, 1)
    assert list(tmp_path.iterdir()) == [path]
