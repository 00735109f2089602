"""The statistics of a study against numbers worked out by hand."""

import pytest

from experiments.study.intervals import paired_difference


def half_width(difference):
    low, high = difference.interval
    assert low + high == pytest.approx(2 * difference.mean)
    return (high - low) / 2


def test_paired_difference_and_its_t_interval():
    difference = paired_difference([3.0, 5.0, 7.0], [2.0, 2.0, 5.0])
    assert difference.values == (1.0, 3.0, 2.0)
    assert difference.mean == 2.0
    assert half_width(difference) == pytest.approx(4.302653 * 1 / 3**0.5, rel=1e-6)  # t(0.975, 2) of a printed table
    assert not difference.is_shown
    assert paired_difference([3.0, 3.1, 2.9], [0.0, 0.0, 0.0]).is_shown
    assert paired_difference([-3.0, -3.1, -2.9], [0.0, 0.0, 0.0]).is_shown
    equal = paired_difference([3.0, 4.0], [2.0, 3.0])  # scipy has no interval for equal differences
    assert (equal.mean, equal.interval) == (1.0, (1.0, 1.0))


def test_five_pairs():
    difference = paired_difference([1.0, 2.0, 3.0, 4.0, 5.0], [0.0] * 5)
    assert half_width(difference) == pytest.approx(2.776445 * 2.5**0.5 / 5**0.5, rel=1e-6)
