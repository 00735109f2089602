"""The environment: pins that agree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tokennorm.base.environment import FORKS, PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r'^([\w.-]+)==([\w.]+)', re.MULTILINE)


def pins_of_pyproject():
    text = (ROOT / 'pyproject.toml').read_text()
    groups = text[text.index('[dependency-groups]') : text.index('[tool.uv]')]
    return re.findall(r'"([\w.-]+)==([\w.]+)', groups)


def test_uv_lock_has_the_pins_and_comes_from_pypi_only():
    lock = (ROOT / 'uv.lock').read_text()
    locked = set(re.findall(r'^name = "([\w.-]+)"\nversion = "([\w.]+)"', lock, re.MULTILINE))
    assert len(pins_of_pyproject()) > 20
    assert {(name.lower(), version) for name, version in pins_of_pyproject()} <= locked
    assert set(re.findall(r'registry = "([^"]*)"', lock)) == {'https://pypi.org/simple'}
    assert 'file://' not in lock


@pytest.mark.parametrize('file', sorted((ROOT / 'requirements').glob('*.txt')), ids=lambda file: file.stem)
def test_requirements_are_pinned(file):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith('#')]
    assert len(PIN.findall(file.read_text())) == len(lines) > 0


def test_pre_commit_has_the_pinned_ruff():
    ruff = dict(pins_of_pyproject())['ruff']
    assert f'rev: v{ruff} ' in (ROOT / '.pre-commit-config.yaml').read_text()


def test_the_smoke_list_of_the_originals_exists():
    listed = re.findall(r'[\w/]*tests/(?:\w+/)*test_\w+\.py(?:::\w+)?', (ROOT / 'Makefile').read_text())
    assert len(listed) > 5
    for file, _, name in (test.partition('::') for test in listed):
        assert f'def {name}' in (ROOT / file).read_text(), file


def test_the_demo_installs_what_it_needs_and_not_what_only_tests_need():
    uv = shutil.which('uv', path=f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}')
    if uv is None:
        pytest.skip('uv is not installed')
    (options,) = re.findall(r'^demo:\n.*setup_env\.sh (.*)$', (ROOT / 'Makefile').read_text(), re.MULTILINE)
    command = [uv, 'export', '--frozen', '--offline', '--quiet', '--no-hashes', '--no-annotate', *options.split()]
    exported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r'^([\w.-]+)==', exported, re.MULTILINE))
    assert {FORKS.get(name, name) for name in PACKAGES} | {'hotcoco', 'jinja2'} <= names  # check_env, and the report
    assert '\n./projects/mmcv_ops ' in exported
    others = {'imagecorruptions-imaug', 'lightly', 'llvmlite', 'mypy', 'numba', 'onnx', 'openvino', 'pytest', 'triton'}
    assert not others & names


def test_an_interrupted_installation_is_completed(tmp_path):
    """A package without all its files is installed again, and a moved interpreter is replaced. uv is a recorder.

    After an interruption of `make test`, `make demo` installs all groups, and the other way round.
    """
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', tmp_path], check=True)
    uv = tmp_path / 'bin' / 'uv'
    uv.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\nexit 1\n')
    uv.chmod(0o755)
    (site,) = tmp_path.glob('lib/python3.*/site-packages')
    for name, file in dict(whole='whole.py', broken='absent.py').items():
        (site / f'{name}-1.0.dist-info').mkdir()
        (site / f'{name}-1.0.dist-info' / 'RECORD').write_text(f'{file},,\n')
    (site / 'whole.py').touch()
    for link in (tmp_path / 'bin').glob('python*'):  # the interpreter has moved
        link.unlink()
        link.symlink_to('/nowhere/python')
    python = tmp_path / 'python'  # whose environments have no pip, which would take most of the time
    python.write_text(f'#!/bin/sh\n[ "$2" != venv ] || set -- "$@" --without-pip\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    variables = {**os.environ, 'VENV': str(tmp_path), 'PYTHON': str(python)}
    for options in (['--group', 'one'], ['--group', 'one'], [], ['--group', 'one']):
        assert subprocess.run(['tools/setup_env.sh', *options], cwd=ROOT, env=variables).returncode == 1
    assert (tmp_path / 'bin' / 'python').exists()
    sync, again = 'sync --frozen --inexact', 'sync --frozen --inexact --reinstall-package broken'
    calls = (tmp_path / 'calls').read_text().splitlines()
    assert calls == [f'{sync} --group one', f'{again} --group one', again, again]
