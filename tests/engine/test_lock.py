"""A process and a work directory take one run at a time; the lock of the directory ends with its process."""

import errno
import multiprocessing
import os
import resource
import threading
import time
from contextlib import nullcontext, suppress

import cv2
import pytest
from mmengine.registry import DefaultScope
from mmengine.runner.utils import set_random_seed
from mmengine.utils import ManagerMixin
from mmengine.utils.dl_utils import set_multi_processing

from tests.helpers.settings import changed, settings
from tokennorm.base.messages import UserError
from tokennorm.base.process import alone
from tokennorm.engine import lock
from tokennorm.engine.distributed import use_device
from tokennorm.engine.lock import LOCK, locked_work_dir, one_run
from tokennorm.images.drawing import names_for_matplotlib


def hold(folder, ready):
    """Keeps the lock of a folder, with a data worker, which outlives a kill of its parent for seconds."""
    os.setsid()
    with locked_work_dir(folder):
        if os.fork():
            ready.set()
            time.sleep(60)
        time.sleep(2)
        os._exit(0)


@pytest.fixture
def holder(tmp_path):
    forks = multiprocessing.get_context('fork')  # a new interpreter would import for two seconds
    ready = forks.Event()
    process = forks.Process(target=hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(20)
    yield process
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, 9)


@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')  # of Python 3.12, in a process with threads
def test_second_training_in_a_work_directory_is_refused(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, 'PATIENCE', 0)
    with pytest.raises(UserError, match=f'{tmp_path} is in use by another'), locked_work_dir(tmp_path):
        pass
    monkeypatch.setenv('RANK', '1')
    with locked_work_dir(tmp_path):  # the other ranks of the first one
        pass
    monkeypatch.undo()
    holder.kill()
    holder.join()
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


def test_a_run_puts_back_the_settings_of_the_process():
    cv2.setNumThreads(2)
    set_random_seed(4)  # an earlier test may have left the state that 3 gives
    for _ in range(2):  # what is imported at first stays
        before = settings()
        with suppress(KeyError), one_run():
            set_random_seed(3, deterministic=True)
            set_multi_processing('spawn', 0)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
            use_device('cpu')
            names_for_matplotlib(['größe'])
            set_by_run = {'random', 'numpy', 'torch_generator', 'start_method', 'opencv', 'files', 'deterministic'}
            assert set_by_run <= set(changed(before))
            raise KeyError
    assert changed(before) == {}


def test_runs_without_a_seed_have_different_ones():
    seeds = []
    for _ in range(2):
        with one_run(seeded=False):
            seeds.append(set_random_seed())
    assert seeds[0] != seeds[1]


def test_a_run_that_fails_leaves_no_lock_of_mmengine():
    class Failing(ManagerMixin):
        def __init__(self, name):
            raise OSError(name)

    with pytest.raises(OSError, match='logger'), one_run():
        Failing.get_instance('logger')
    other = threading.Thread(target=DefaultScope.get_current_instance, daemon=True)
    other.start()
    other.join(5)
    assert not other.is_alive()


def test_one_run_waits_for_another_and_may_be_nested(capsys):
    """Other threads open detectors when the first batch of a run follows."""
    events, started = [], threading.Event()

    def other():
        started.set()
        with one_run():
            events.append('other')

    def opens():
        with alone():
            events.append('opened')

    threads = [threading.Thread(target=opens), threading.Thread(target=other)]
    with one_run() as built:
        threads[0].start()
        time.sleep(0.05)
        events.append('built')
        built.before_train(None)
        threads[0].join(10)
        threads[1].start()
        started.wait(10)
        time.sleep(0.05)
        with one_run():  # such as an evaluation by a hook
            events.append('ended')
    threads[1].join(10)
    assert events == ['built', 'opened', 'ended', 'other']
    assert capsys.readouterr().out.startswith('Another thread trains or evaluates, and a process has one run at a time')
