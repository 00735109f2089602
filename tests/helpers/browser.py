"""A page in headless Chromium: a script works on it, and its result comes back."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest

NAMES = 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome'
FRAME = """<!doctype html><title></title><iframe width="{width}" height="900"></iframe><script>
const frame = document.querySelector('iframe');
frame.addEventListener('load', () => {{
  const [window, document] = [frame.contentWindow, frame.contentDocument];
  const all = selector => [...document.querySelectorAll(selector)];
  const seen = selector => all(selector).filter(one => one.getClientRects().length);
  const result = (() => {{ {script} }})();
  const root = document.documentElement;
  self.document.title = JSON.stringify({{result, errors: window.errors, wide: root.scrollWidth - root.clientWidth}});
}});
frame.srcdoc = {page};
</script>"""


def visit(page, folder, script='', width=1200, dark=False):
    """Returns what a script returns on a page, whose window has a width in pixels.

    It has no errors of scripts, and is not wider than its window.
    """
    browser = os.environ.get('CHROMIUM') or next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip(f'no browser: none of {", ".join(NAMES)} is in PATH, and CHROMIUM is not set')
    noting = '<head><script>window.errors = []; window.onerror = text => { errors.push(text); }</script>'
    text = json.dumps(page.read_text(encoding='utf-8').replace('<head>', noting, 1)).replace('</', '<\\/')
    (folder / 'frame.html').write_text(FRAME.format(width=width, script=script, page=text), encoding='utf-8')
    options = ['--headless=new', '--no-sandbox', '--disable-gpu', f'--user-data-dir={folder / "profile"}']
    options += ['--virtual-time-budget=5000', '--window-size=1400,1000', '--dump-dom', *dark * [DARK]]
    command = [browser, *options, (folder / 'frame.html').as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(html.unescape(re.search('<title>(.*?)</title>', done.stdout)[1]))
    assert found['errors'] == []
    assert found['wide'] <= 0, f'{page.name} is {found["wide"]} pixels wider than a window of {width}'
    return found.get('result')


DARK = '--blink-settings=preferredColorScheme=0'
