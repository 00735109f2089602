"""Configs of runs need no layout here; `plain_files` is for tests that do not look at figures."""

import pytest

from tests.helpers.plain import plain_config
from tests.helpers.report import report  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def quick_checkpoints():
    with plain_config():
        yield
