"""A work directory takes one training run at a time; the lock ends with its process."""

import os
import socket
import subprocess
import sys

import pytest

from tokennorm.engine.work_dir import LOCK, locked_work_dir
from tokennorm.messages import UserError

HOLD = """
import os, sys, time
from tokennorm.engine.work_dir import locked_work_dir
with locked_work_dir(sys.argv[1]):
    if os.fork():  # a data worker outlives a kill of its parent for seconds
        print('locked', flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == 'locked\n'
    yield process
    os.killpg(process.pid, 9)


def test_second_training_names_the_process_of_the_first(holder, tmp_path, monkeypatch):
    message = rf'{tmp_path} is in use by process {holder.pid} on {socket.gethostname()}, started 20\d\d-.*--work-dir'
    with pytest.raises(UserError, match=message), locked_work_dir(tmp_path):
        pass
    monkeypatch.setenv('RANK', '1')
    with locked_work_dir(tmp_path):  # the other ranks of the first one
        pass
    monkeypatch.delenv('RANK')
    os.kill(holder.pid, 9)
    holder.wait()
    for _ in range(2):
        with locked_work_dir(tmp_path):
            assert f'process {os.getpid()} on ' in (tmp_path / LOCK).read_text()
