"""Settings of the process are changed by one thread at a time, and put back."""

import gc
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.settings import changed, settings
from tokennorm.base.process import alone, muted, without_collection, without_warnings

BLOCKS = [alone, muted, without_warnings, without_collection]


@pytest.mark.parametrize('block', BLOCKS)
def test_threads_leave_the_settings_as_they_were(block):
    before = settings(generators=False)

    def use(number):
        with block():
            time.sleep(0.001 * (number % 3))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(40)))
    assert changed(before, generators=False) == {}
    with pytest.raises(KeyError), block(), block():
        raise KeyError
    assert changed(before, generators=False) == {}


def test_only_what_its_own_thread_prints_is_muted(capsys):
    with muted():
        print('of this thread')
        other = threading.Thread(target=print, args=('of another',))
        other.start()
        other.join()
    print('afterwards')
    assert capsys.readouterr().out == 'of another\nafterwards\n'


def test_a_stream_that_is_replaced_meanwhile_stays(capsys):
    before = sys.stdout
    with muted():
        taken = sys.stdout
        sys.stdout = sys.stderr
    assert sys.stdout is sys.stderr
    sys.stdout = before
    print('kept', file=taken)
    assert capsys.readouterr().out == 'kept\n'


def test_a_program_may_have_no_output(monkeypatch):
    monkeypatch.setattr(sys, 'stdout', None)
    with muted():
        print('nowhere')
    assert sys.stdout is None


def test_nothing_is_collected_until_the_block_ends():
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_user_who_collects_no_garbage_keeps_it_so():
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_warnings_come_again_afterwards():
    with without_warnings():
        warnings.warn('not shown', stacklevel=1)
    with pytest.warns(UserWarning, match='shown'):
        warnings.warn('shown', stacklevel=1)


def test_a_forked_worker_does_not_wait_for_threads_of_its_parent():
    """Such as a data worker that is started while another thread opens a detector."""
    entered, leaves = threading.Event(), threading.Event()

    def hold():
        with alone():
            entered.set()
            leaves.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    entered.wait(10)
    if not (child := os.fork()):
        with alone():
            os._exit(0)
    deadline = time.monotonic() + 5
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    leaves.set()
    other.join()
    if not ended[0]:
        os.kill(child, 9)
    assert ended == (child, 0)
