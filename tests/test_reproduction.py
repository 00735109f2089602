"""docs/research/reproduction.md has a row with a status for every table and figure of both papers."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / 'docs' / 'research' / 'reproduction.md').read_text()
# The DTN paper's, in the order of their numbers. Those with two independent parts have a row each.
TABLES = [1, 2, 3, 4, 5, 6, '7 (a)', '7 (b)', 8, 9, '10 (a)', '10 (b)', 11, 12]
FIGURES = [1, 2, '3 (a)', '3 (b)', 4, 5, 6, 7, 8, 9]
DPN_NOTES = ['comparison to ViT', 'LayerNorm placements', 'Pre, Post, Post PosEmb', 'scales of the first norm']


def rows():
    table = re.findall(r'^\| (.*?) \| .* \| (.*) \|$', PAGE, re.MULTILINE)
    return [(name, status) for name, status in table if status != 'status']


def test_every_table_and_figure_of_both_papers_has_a_row():
    dtn = [f'Table {number}' for number in TABLES] + [f'Figure {number}' for number in FIGURES] + ['B.2']
    assert [name for name, _ in rows()] == dtn + DPN_NOTES


def test_every_row_says_how_to_run_it_or_why_not():
    for name, status in rows():
        parts = status.split('; ')
        assert all(re.match(r'(runnable[ \w-]*|reduced run|not covered): \S', part) for part in parts), name
        for part in parts:
            if part.startswith('runnable'):
                assert '`' in part or '](' in part, f'{name}: no command, config or page'
