"""Names in messages: the nearest name is offered, and none that is far; long lists end early."""

import pytest

from tokennorm.messages import UserError, did_you_mean, shorten, user_errors


def test_the_nearest_name():
    known = ['tiny', 'small', 'DTN', 'LayerNorm']
    assert did_you_mean('tinny', known) == ' (did you mean tiny?)'
    assert did_you_mean('DNT', [*known, 'DyT']) == did_you_mean('dtn', known) == ' (did you mean DTN?)'
    assert did_you_mean('layernorm', known) == ' (did you mean LayerNorm?)'
    assert did_you_mean('resnet50', known) == ''
    assert did_you_mean(3, known) == did_you_mean(None, known) == ''
    assert did_you_mean('tinny', known, cutoff=0.95) == ''


def test_a_long_list_ends_with_how_many_more():
    assert shorten(['a', 'b', 'c'], most=3) == 'a, b, c'
    assert shorten(['a', 'b', 'c', 'd'], most=2) == 'a, b and 2 more'
    assert shorten([]) == ''


def test_user_errors_translates_the_given_kinds():
    with pytest.raises(UserError, match=r'^--out: full$'), user_errors(OSError, where='--out: '):
        raise OSError('full')
    with pytest.raises(KeyError), user_errors(OSError, ValueError):
        raise KeyError('a')
