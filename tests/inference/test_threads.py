"""Work in threads, in order and with a bound."""

import threading
import time

import pytest

from tokennorm.inference.threads import in_threads


def test_values_come_in_the_order_of_their_items():
    def slow(item):
        time.sleep(0.01 * (item % 3 == 0))
        return item**2

    assert list(in_threads(slow, range(20), threads=3)) == [item**2 for item in range(20)]


@pytest.mark.parametrize('threads', [1, 3])
def test_few_items_are_taken_ahead(threads):
    """So that the memory of a folder does not grow with its number of images."""
    taken = []
    values = in_threads(lambda item: item, map(lambda item: taken.append(item) or item, range(100)), threads)
    for done, value in enumerate(values):
        assert value == done
        assert len(taken) <= done + 1 + threads
    assert len(taken) == 100


def test_items_are_computed_at_the_same_time():
    together = threading.Barrier(3)
    assert list(in_threads(lambda item: together.wait(10) < 3, range(6), threads=3)) == [True] * 6


def test_an_error_comes_at_its_item():
    values = in_threads(lambda item: 6 // item, [3, 2, 0, 1], threads=2)
    assert [next(values), next(values)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(values)


def test_what_was_begun_ends_when_the_items_fail():
    done = []

    def items():
        yield from range(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(in_threads(lambda item: time.sleep(0.02) or done.append(item), items(), threads=2))
    assert sorted(done) == [0, 1, 2]
