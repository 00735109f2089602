"""Faults of the environment are found without any package installed."""

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokennorm.base import environment


def test_runs_without_any_package():
    """-S hides site-packages, as in a fresh environment."""
    command = [sys.executable, '-S', '-m', 'tokennorm.cli.check_env']
    variables = {**os.environ, 'PYTHONPATH': str(Path(environment.__file__).parents[2])}
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.returncode == 1, process.stderr
    assert 'FAIL  packages: not installed: torch, ' in process.stdout


@pytest.fixture
def poor_user(tmp_path, monkeypatch):
    """A user whose id has no name and no home."""

    def no_such_user(number):
        raise KeyError(f'getpwuid(): uid not found: {number}')

    monkeypatch.setattr('pwd.getpwuid', no_such_user)
    for name in ('HOME', 'XDG_CACHE_HOME', 'MPLCONFIGDIR', 'USER', 'LOGNAME', 'LNAME', 'USERNAME'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    for name in ('USER', 'XDG_CACHE_HOME', 'MPLCONFIGDIR'):  # removed again after the test
        monkeypatch.setenv(name, '')
        del os.environ[name]
    return tmp_path


def test_a_user_without_a_name_gets_one(poor_user):
    text = environment.settle_user()
    folder = f'{poor_user}/tokennorm-{os.getuid()}'
    assert text.startswith(f'there is no home directory: caches are in {folder}; XDG_CACHE_HOME')
    assert getpass.getuser() == f'user-{os.getuid()}'
    assert (os.environ['XDG_CACHE_HOME'], os.environ['MPLCONFIGDIR']) == (folder, folder)
    assert environment.settle_user() == ''  # once


def test_a_user_with_a_home_is_left_alone(poor_user, monkeypatch):
    monkeypatch.setenv('HOME', str(poor_user))
    monkeypatch.setenv('USER', 'me')
    before = dict(os.environ)
    assert environment.settle_user() == ''
    assert os.environ == before


def chained(outer, inner):
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ('error', 'remedy'),
    [
        (PermissionError(13, 'Permission denied', '/opt/x.py'), 'give this user the right'),
        (OSError(30, 'Read-only file system', '/x'), 'give this user the right'),
        (OSError(28, 'No space left on device'), 'free some space'),
        (OSError(122, 'Disk quota exceeded'), 'free some space'),
        (OSError(12, 'Cannot allocate memory'), 'free some memory'),
        (OSError(24, 'Too many open files'), 'raise `ulimit -n`'),
        (MemoryError(), 'free some memory'),
        (ImportError('libtorch_cpu.so: failed to map segment from shared object'), 'free some memory'),
        (chained(RuntimeError('no locator'), PermissionError(13, 'Permission denied')), 'give this user the right'),
        (chained(ImportError('x'), OSError(28, 'No space left on device')), 'free some space'),
        (OSError('libcudart.so.12: cannot open shared object file'), ''),
        (FileNotFoundError(2, 'No such file or directory', 'x'), ''),
        (ImportError('libGL.so.1: cannot open shared object file'), ''),
        (AttributeError('x'), ''),
    ],
)
def test_what_helps_where_the_machine_ends_an_import(error, remedy):
    assert environment.remedy_of_import(error).startswith(remedy)
    assert bool(environment.remedy_of_import(error)) == bool(remedy)
    raised = ImportError('cannot import it')
    raised.__context__ = error  # as `raise` in an `except` sets it
    assert environment.remedy_of_import(raised) == environment.remedy_of_import(error)
