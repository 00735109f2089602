"""How OpenMP's threads wait: set by the command before PyTorch is imported, unless the user has set it."""

import os

import pytest

from tokennorm.cli.command import command


@pytest.mark.parametrize(
    ('given', 'expected'),
    [
        ({}, {'GOMP_SPINCOUNT': '1000'}),
        ({'GOMP_SPINCOUNT': '7'}, {'GOMP_SPINCOUNT': '7'}),
        ({'OMP_WAIT_POLICY': 'active'}, {'OMP_WAIT_POLICY': 'active'}),
    ],
)
def test_the_users_variables_take_precedence(given, expected, monkeypatch):
    monkeypatch.setattr(os, 'environ', dict(given))
    seen = []
    command(lambda argv: seen.append(dict(os.environ)))([])
    assert seen == [expected]
