"""The environment: pins that agree, and what `make` runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r'^([\w.-]+)==([\w.]+)', re.MULTILINE)


def pins_of(*names):
    return [pin for name in names for pin in PIN.findall((ROOT / 'requirements' / f'{name}.txt').read_text())]


def test_pyproject_and_requirements_pin_the_same_versions():
    text = (ROOT / 'pyproject.toml').read_text()
    groups = text[text.index('[dependency-groups]') : text.index('[tool.uv]')]
    pinned = pins_of('torch', 'mmcv', 'runtime', 'tests', 'export')
    assert sorted(re.findall(r'"([\w.-]+)==([\w.]+)', groups)) == sorted(pinned)
    build = re.search(r'^onedl-mmcv = \[(.*)\]$', text, re.MULTILINE).group(1)
    assert re.findall(r'"([\w.-]+)==([\w.]+)"', build) == pins_of('build')
    assert f'opencv-python-headless=={dict(pins_of("opencv"))["opencv-python-headless"]}' in text


def test_uv_lock_has_the_pins_and_comes_from_pypi_only():
    lock = (ROOT / 'uv.lock').read_text()
    locked = set(re.findall(r'^name = "([\w.-]+)"\nversion = "([\w.]+)"', lock, re.MULTILINE))
    assert not set(map(tuple, (p for p in pins_of('torch', 'mmcv', 'runtime') if p[0] != 'opencv-python'))) - locked
    assert {(name.lower(), version) for name, version in pins_of('tests', 'export')} <= locked
    assert set(re.findall(r'registry = "([^"]*)"', lock)) == {'https://pypi.org/simple'}
    assert 'file://' not in lock


@pytest.mark.parametrize('file', sorted((ROOT / 'requirements').glob('*.txt')), ids=lambda file: file.stem)
def test_requirements_are_pinned(file):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith('#')]
    assert len(PIN.findall(file.read_text())) == len(lines) > 0


def test_pre_commit_has_the_pinned_ruff():
    assert f'rev: v{dict(pins_of("tests"))["ruff"]} ' in (ROOT / '.pre-commit-config.yaml').read_text()
