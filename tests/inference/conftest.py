"""Runs and published files need no layout here."""

import pytest


@pytest.fixture(autouse=True)
def quick_files(plain_files):
    pass
