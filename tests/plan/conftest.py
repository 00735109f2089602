"""Runs of training write many checkpoints, whose configs need no layout here."""

import pytest


@pytest.fixture(autouse=True)
def quick_checkpoints(plain_config_text):
    pass
