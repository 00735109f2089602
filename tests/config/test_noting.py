"""A dict that notes what is read from it."""

from copy import deepcopy

import pytest

from tokennorm.config.noting import Noting


@pytest.mark.parametrize(
    ('read', 'unread'),
    [
        (lambda one: one['a'], ['b']),
        (lambda one: one.get('a'), ['b']),
        (lambda one: one.get('c'), ['a', 'b']),
        (lambda one: 'b' in one, ['a']),
        (lambda one: one.pop('b'), ['a']),
        (lambda one: one.setdefault('a', 3), ['b']),
        (lambda one: dict(**one), []),
        (lambda one: one.items(), []),
        (lambda one: one.values(), []),
        (lambda one: sorted(one.keys()), ['a', 'b']),
        (lambda one: len(one), ['a', 'b']),
        (lambda one: deepcopy(one)['a'], ['b']),
        (lambda one: one.copy()['a'], ['b']),
    ],
)
def test_what_is_read_is_noted(read, unread):
    one = Noting(dict(a=1, b=2))
    read(one)
    assert one.unread() == unread
    assert isinstance(one, dict)


def test_what_was_asked_for_is_known_even_if_it_is_absent():
    one = Noting(dict(a=1))
    assert one.get('b', 7) == 7
    assert one.asked == {'b'}
    with pytest.raises(KeyError):
        one['c']
    assert one.asked == {'b', 'c'}
