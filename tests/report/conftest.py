"""Reports write many checkpoints, whose configs need no layout here."""

import pytest

from tests.helpers.report import report  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def quick_checkpoints(plain_config_text):
    pass
