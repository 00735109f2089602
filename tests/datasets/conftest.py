"""Each test has a cache of its own for converted annotations."""

import pytest


@pytest.fixture(autouse=True)
def empty_cache(cache):
    pass
