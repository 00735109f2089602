"""The report in a real browser: it opens without errors, its tables sort, its images load, it fits a phone."""

import json
import shutil
import subprocess

import pytest

BROWSER = shutil.which('chromium') or shutil.which('google-chrome')
PROBE = """
<pre id="probe"></pre>
<script>
addEventListener('load', () => {
  const table = document.querySelector('table.sortable');
  const column = index => [...table.tBodies[0].rows].map(row => row.cells[index].textContent.trim());
  const click = index => { table.tHead.rows[0].cells[index].querySelector('button').click(); return column(index); };
  document.getElementById('probe').textContent = JSON.stringify({
    errors: window.problems,
    descending: click(3), ascending: click(3), names: click(0),
    images: [...document.querySelectorAll('svg image')].map(image => image.getBoundingClientRect().width),
    figures: [...document.querySelectorAll('figure > svg')].map(svg => svg.getBoundingClientRect().width),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  });
});
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason='needs chromium')
@pytest.mark.parametrize('width', [1200, 500])  # headless Chromium has no narrower window
def test_the_page_works_in_a_browser(report, tmp_path, width):
    folder, *_ = report
    page = tmp_path / 'page.html'
    start = '<head><script>window.problems = []; onerror = text => window.problems.push(text);</script>'
    page.write_text((folder / 'report.html').read_text().replace('<head>', start).replace('</body>', PROBE + '</body>'))
    arguments = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking']
    arguments += [f'--user-data-dir={tmp_path / "profile"}', f'--window-size={width},900', '--dump-dom', page.as_uri()]
    done = subprocess.run([BROWSER, *arguments], capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout.split('<pre id="probe">')[1].split('</pre>')[0])
    assert found['errors'] == []
    values = [float(text) for text in found['descending']]
    assert values == sorted(values, reverse=True)
    assert [float(text) for text in found['ascending']] == sorted(values)
    assert found['names'] == sorted(found['names'])
    assert len(set(values)) > 1
    assert min(found['images']) > 100
    assert min(found['figures']) > 300
    assert found['overflow'] <= 0
