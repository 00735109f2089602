"""A work directory takes one training run at a time; the lock ends with its process."""

import errno
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from tokennorm.engine import lock
from tokennorm.engine.lock import LOCK, locked_work_dir
from tokennorm.messages import UserError

HOLD = """
import os, sys, time
from tokennorm.engine.lock import locked_work_dir
with locked_work_dir(sys.argv[1]):
    if os.fork():
        print('locked', flush=True)
        time.sleep(60)
    time.sleep(2)  # a data worker outlives a kill of its parent for seconds
    os._exit(0)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == 'locked\n'
    yield process
    os.killpg(process.pid, 9)


def test_second_training_in_a_work_directory_is_refused(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, 'PATIENCE', 0)
    with pytest.raises(UserError, match=f'{tmp_path} is in use by another'), locked_work_dir(tmp_path):
        pass
    monkeypatch.setenv('RANK', '1')
    with locked_work_dir(tmp_path):  # the other ranks of the first one
        pass
    monkeypatch.undo()
    os.kill(holder.pid, 9)
    holder.wait()
    for _ in range(2):
        with locked_work_dir(tmp_path):
            assert (tmp_path / LOCK).is_file()


@pytest.mark.parametrize(('number', 'error'), [(errno.ENOLCK, None), (errno.EOPNOTSUPP, None), (errno.EIO, OSError)])
def test_a_file_system_without_locks_is_trained_on(tmp_path, monkeypatch, number, error):
    def flock(*args):
        raise OSError(number, 'flock')

    monkeypatch.setattr('fcntl.flock', flock)
    with pytest.raises(error) if error else nullcontext(), locked_work_dir(tmp_path):
        pass
