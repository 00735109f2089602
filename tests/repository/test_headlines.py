"""The first figures that a user reads are those of kept runs, and not of an old version; plans are those of steps."""

import re
import runpy
from pathlib import Path

import pytest
from packaging.version import Version

from experiments.cpu_default.run import PAGE, default_runs, page, read
from tokennorm.version import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_what_to_expect_is_that_of_the_kept_runs():
    assert PAGE.read_text('utf-8') == page(read()), 'python projects/experiments/cpu_default/run.py --pages'


@pytest.mark.parametrize(('data', 'step'), [('nuclei150_boxes', 'headline_256'), ('raccoon', 'headline')])
def test_headlines_are_of_this_minor_version(data, step):
    now = Version(__version__)
    for run in default_runs(read(), data, 12):
        measured = Version(run['version'])
        command = f'python projects/experiments/cpu_default/run.py {step} {data}'
        assert (measured.major, measured.minor) >= (now.major, now.minor), f'of {measured}: {command}, then --pages'


def test_tables_of_the_experiment_are_of_its_kept_runs():
    kept = {f'{100 * run[name]:.1f}' for run in read() for name in ('bbox_mAP', 'segm_mAP') if name in run}
    lines = (ROOT / 'projects/experiments/cpu_default/README.md').read_text('utf-8').splitlines()
    cells = [line for line in lines if line.startswith('| ') and '(minutes)' not in line]
    aps = re.findall(r'(?<![(\d])\d+\.\d(?!\))', ' '.join(cells))  # minutes are in brackets
    assert len(aps) > 90
    assert set(aps) <= kept


def rows(page, start):
    """Cells of the rows of a page's table that begin so."""
    lines = (ROOT / page).read_text('utf-8').splitlines()
    return [line.strip('| ').split(' | ') for line in lines if line.startswith(f'| {start}')]


def test_plans_for_gpus_are_computed_from_the_measured_steps(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    scaling = runpy.run_path(str(ROOT / 'benchmarks/scaling.py'))
    norms = ('LayerNorm | 34', "DTN, the paper's pools |", 'DTN, not pooled |')
    measured = [rows('docs/speed.md', norm)[0][1:] for norm in norms]
    for column, backbone in enumerate(('PVT-T', 'Swin-T')):
        for cells, plan in zip(measured, rows('docs/guides/distributed.md', backbone), strict=True):
            step, *relative = cells[column].split(', ')
            assert scaling['STEPS'][plan[0]][0] == int(step.removesuffix(' ms')), plan[0]
            rate = scaling['images_per_second'](*scaling['STEPS'][plan[0]], 8, 300, 25)
            assert plan[1] == f'{round(rate, -2):,.0f}'
            assert plan[2] == f'{scaling["IMAGES"] * scaling["EPOCHS"] / rate / 3600:.0f}'
            assert plan[3] == (relative[1] if relative else '1.00')
