"""Datasets of a few images."""

import re

from tests.helpers.commands import tool  # noqa: F401
from tests.helpers.trained import CONFIG, options, without_report  # noqa: F401


def few(**more):
    """Options that keep a run small, without those that name the data."""
    return [
        one for one in options('x', **more) if not re.search(r'data_root|ann_file|max_epochs|val_interval|ckpt', one)
    ]
