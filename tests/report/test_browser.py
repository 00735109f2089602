"""The pages in a real browser: no errors, sorting, enlarging, the slider, dark mode, and a phone."""

import json

import pytest

from tests.helpers.browser import visit
from tests.helpers.detections import LONG_NAMES, make_truth, noisy
from tokennorm.report.comparison import compare, read_run
from tokennorm.report.page import write_report

SLIDE = """
const slider = all('.slider input')[0];
const move = score => { slider.value = score; slider.dispatchEvent(new window.Event('input')); };
const count = (group, state) => seen(`#worst svg.${group} .${state} rect`).length;
const counts = () => [count('detections', 'false'), count('annotations', 'missed'), count('detections', 'right')];
const captions = () => all('#worst figcaption b').map(one => one.textContent);
"""


@pytest.fixture(scope='module')
def long_names(report, tmp_path_factory):
    """A run with long names of classes, in a long folder."""
    source, truth, _, _ = report
    folder = tmp_path_factory.mktemp('run') / ('retinanet_efficientnet-lite0_fpn_' * 3)
    folder.mkdir()
    truth = make_truth(num_images=8)
    for category, name in zip(truth['categories'], LONG_NAMES, strict=True):
        category['name'] = name
    (folder / 'val.json').write_text(json.dumps(truth))
    write_report(folder / 'report.html', folder / 'val.json', dict(bbox=noisy(truth)), source)
    return folder


def test_a_page_has_no_errors_and_is_as_wide_as_its_window(report, long_names, tmp_path):
    runs = read_run(report[0]), read_run(long_names)
    compare(*runs, tmp_path / 'compare.html')
    visit(report[0] / 'report.html', tmp_path)
    for page in (report[0] / 'report.html', long_names / 'report.html', tmp_path / 'compare.html'):
        visit(page, tmp_path, width=390)


def test_the_figures_of_a_class_are_in_view_on_a_phone(long_names, tmp_path):
    script = (
        "return all('#classes tbody tr').map(row => [row.cells[0].title, row.cells[3].getBoundingClientRect().right])"
    )
    rows = visit(long_names / 'report.html', tmp_path, script, width=390)
    assert {name for name, _ in rows} == set(LONG_NAMES)
    assert max(right for _, right in rows) <= 390  # AP


def test_the_difference_of_a_class_is_in_view_on_a_phone(long_names, tmp_path):
    run = read_run(long_names)
    compare(run, run, tmp_path / 'compare.html')
    script = "return all('.sortable td:last-child').map(cell => cell.getBoundingClientRect().right)"
    places = visit(tmp_path / 'compare.html', tmp_path, script, width=390)
    assert len(places) == len(LONG_NAMES)
    assert max(places) <= 390


def test_a_table_is_sorted_by_a_click(report, tmp_path):
    script = """
      const column = i => all('#classes tbody tr').map(row => row.cells[i].textContent.trim());
      const click = i => { all('#classes th button')[i].click(); return column(i); };
      return [click(3), click(3), click(0)]"""
    down, up, names = visit(report[0] / 'report.html', tmp_path, script)
    assert down == sorted(down, key=float, reverse=True) == up[::-1]
    assert names == sorted(names)


def test_an_image_is_enlarged_by_a_click(report, tmp_path):
    script = """
      const [zoom, small] = [document.getElementById('zoom'), all('#worst button.zoom')[1]];
      const before = [...small.querySelectorAll('text')].filter(one => one.getClientRects().length).length;
      small.click();
      const sizes = [small, zoom].map(one => one.querySelector('svg').getBoundingClientRect().width);
      const texts = [before, seen('#zoom text').length];
      const was = zoom.open; zoom.click();
      return [sizes, texts, was, zoom.open]"""
    (small, large), texts, was, is_open = visit(report[0] / 'report.html', tmp_path, script)
    assert large > 3 * small
    assert texts[1] >= texts[0]
    assert (was, is_open) == (True, False)


def test_the_slider_sets_the_score(report, tmp_path):
    """Shapes and captions are those of the report at first; then of other scores; and the first ones again."""
    _, _, _, numbers = report
    threshold = numbers['results']['bbox']['threshold']
    script = f"""{SLIDE}
      const found = [[counts(), captions()]];
      for (const score of [{threshold}, 1, {threshold / 2}, {threshold}]) {{
        move(score);
        found.push([counts(), captions()]);
      }}
      return [found, all('.slider output').map(one => one.value)]"""
    (first, same, none, all_, again), shown = visit(report[0] / 'report.html', tmp_path, script)
    assert first == same == again
    (false, missed, right), captions = first
    sums = [sum(int(text.split()[i]) for text in captions) for i in (0, 2, 4)]
    assert [false, missed, right] == sums
    assert none[0] == [0, missed + right, 0]
    assert all_[0][0] > false
    assert all_[0][2] >= right
    assert set(shown) == {f'{threshold:.3f}'}


def test_a_page_is_dark_where_the_reader_has_it_so(report, tmp_path):
    script = """
      const {backgroundColor, color} = window.getComputedStyle(document.body);
      return [backgroundColor, color].map(one => one.match(/\\d+/g).slice(0, 3).map(Number))"""
    for dark in (False, True):
        back, ink = visit(report[0] / 'report.html', tmp_path, script, dark=dark)
        assert (sum(back) < sum(ink)) == dark
