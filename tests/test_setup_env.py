"""The environment: pins that agree, what `make` runs, and what tools/setup_env.sh passes to uv."""

import os
import re
import subprocess
import sys
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


@pytest.mark.parametrize(
    ('words', 'last'),
    [
        (['demo'], '"env/bin/python" tools/demo.py'),
        (['demo', 'CONTROL=1'], '"env/bin/python" tools/demo.py --control'),
        (['test', 'PYTEST_ARGS=-k dtn'], '"env/bin/python" -m pytest -n auto --dist worksteal -k dtn'),
        (['env'], 'VENV="env" PYTHON="python9" tools/setup_env.sh'),
    ],
)
def test_make(words, last):
    command = ['make', '-n', '-C', str(ROOT), 'PYTHON=python9', 'VENV=env', *words]
    lines = [line for line in subprocess.check_output(command, text=True).splitlines() if 'env' in line]
    lines = [line.strip() for line in lines if 'Entering' not in line and 'Leaving' not in line]
    assert lines[0] == 'VENV="env" PYTHON="python9" tools/setup_env.sh'
    assert lines[-1] == last


STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
{}
"""


@pytest.fixture
def machine(tmp_path):
    """A copy of the script with an environment whose Python and uv only record their arguments."""
    venv, tools = tmp_path / 'my env', tmp_path / 'repository'
    (tools / 'requirements').mkdir(parents=True)
    (tools / 'pyproject.toml').write_text('    "torch==2.11.0",\n    "torchvision==0.26.0",\n')
    (venv / 'bin').mkdir(parents=True)
    stub(venv / 'bin' / 'python', '[ "$1" != -c ] || exec "$REAL_PYTHON" "$@"')
    stub(venv / 'bin' / 'uv', 'for word; do case $word in --output-file) echo einops==0.8.2 >"$PINS";; esac; done')

    def run(**variables):
        log = tmp_path / 'log'
        log.write_text('')
        env = {'PATH': '/usr/bin:/bin', 'LOG': str(log), 'REAL_PYTHON': sys.executable, 'VENV': str(venv)}
        env['PINS'] = str(venv / 'tokennorm_pins.txt')
        script = ROOT / 'tools' / 'setup_env.sh'
        done = subprocess.run(['sh', str(script)], cwd=tools, env=env | variables, capture_output=True, text=True)
        calls = [line for line in log.read_text().splitlines() if line.startswith('uv ')]
        return done, calls

    run.venv = venv
    return run


def stub(path, body=''):
    path.write_text(STUB.format(body))
    path.chmod(0o755)


def test_without_indexes_the_lock_is_installed(machine):
    done, calls = machine()
    assert (done.returncode, calls) == (0, ['uv sync --frozen --inexact'])
    assert 'Compiling mmcv takes' in done.stdout


def test_indexes_are_passed_on_remembered_and_forgotten(machine):
    done, (export, install) = machine(TORCH_INDEX='https://torch.example/cpu', MMCV_INDEX='/wheels')
    assert done.returncode == 0, done.stderr
    assert '--prune torch --prune torchvision' in export
    assert install.endswith('--index https://torch.example/cpu --index-strategy unsafe-best-match --find-links /wheels')
    pins = (machine.venv / 'tokennorm_pins.txt').read_text()
    assert pins.splitlines() == ['einops==0.8.2', 'torch==2.11.0', 'torchvision==0.26.0']
    assert machine()[1] == [export, install]
    assert machine(TORCH_INDEX='')[1][1].endswith('tokennorm_pins.txt --find-links /wheels')
    assert machine(MMCV_INDEX='')[1] == ['uv sync --frozen --inexact']
    assert machine()[1] == ['uv sync --frozen --inexact']


def test_an_index_of_mmcv_may_be_a_page_of_links(machine):
    install = machine(MMCV_INDEX='https://wheels.example/mmcv')[1][-1]
    assert '--index https://wheels.example/mmcv --find-links https://wheels.example/mmcv' in install


def test_a_wrong_python_is_refused(machine):
    stub(machine.venv / 'bin' / 'python', 'exit 1')
    done, calls = machine()
    assert (done.returncode, calls) == (1, [])
    assert 'is not Python 3.10 to 3.13. Name another interpreter: make env PYTHON=python3.11' in done.stderr


@pytest.mark.parametrize(('nvcc', 'hidden'), [(False, True), (True, False)])
def test_a_gpu_without_nvcc_is_hidden_from_the_build(machine, tmp_path, nvcc, hidden):
    programs = tmp_path / 'programs'
    programs.mkdir()
    stub(programs / 'nvidia-smi')
    if nvcc:
        stub(programs / 'nvcc')
    stub(machine.venv / 'bin' / 'uv', 'echo "visible=${CUDA_VISIBLE_DEVICES-all} jobs=$MAX_JOBS"')
    path = f'{programs}{os.pathsep}/usr/bin{os.pathsep}/bin'
    done, _ = machine(PATH=path, CUDA_HOME='/nowhere', MAX_JOBS='3')
    assert ('visible= jobs=3' if hidden else 'visible=all jobs=3') in done.stdout
    assert ('a GPU, but no nvcc' in done.stdout) == hidden
