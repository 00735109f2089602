"""The environment: pins that agree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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
    listed = re.findall(r'[\w/]*tests/test_\w+\.py(?:::\w+)?', (ROOT / 'Makefile').read_text())
    assert len(listed) > 5
    for file, _, name in (test.partition('::') for test in listed):
        assert f'def {name}' in (ROOT / file).read_text(), file
