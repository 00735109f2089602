"""Runs of training write many checkpoints, whose configs and reports need no layout here."""

import pytest


@pytest.fixture(autouse=True)
def quick_files(plain_files):
    pass
