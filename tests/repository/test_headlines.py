"""The first figures that a user reads are those of kept runs, and not of an old version."""

import pytest
from packaging.version import Version

from experiments.cpu_default.run import PAGE, default_runs, page, read
from tokennorm.version import __version__


def test_the_table_of_what_to_expect_is_that_of_the_kept_runs():
    assert PAGE.read_text('utf-8') == page(read()), 'python projects/experiments/cpu_default/run.py --pages'


@pytest.mark.parametrize(('data', 'step'), [('nuclei150_boxes', 'headline_256'), ('raccoon', 'headline')])
def test_headlines_are_of_this_minor_version(data, step):
    now = Version(__version__)
    for run in default_runs(read(), data, 12):
        measured = Version(run['version'])
        command = f'python projects/experiments/cpu_default/run.py {step} {data}'
        assert (measured.major, measured.minor) >= (now.major, now.minor), f'of {measured}: {command}, then --pages'
