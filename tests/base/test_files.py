"""Output files: whole or as before, folders that can be written to, and the place of the cache."""

import errno
import json
import os
from pathlib import Path

import pytest

from tokennorm.base.files import (
    as_json,
    cache_directory,
    check_output_file,
    home_directory,
    in_home,
    make_output_dir,
    temporary_directory,
    write_atomically,
)
from tokennorm.base.messages import UserError


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / 'new' / 'a.pth'
    write_atomically(path, b'first')
    write_atomically(path, b'second')
    assert path.read_bytes() == b'second'

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr('tokennorm.base.files.os.fsync', full)
    with pytest.raises(OSError, match=r'a.pth, 1.0 MiB, could not be written: No space left') as found:
        write_atomically(path, bytes(2**20))
    assert found.value.errno == errno.ENOSPC
    assert path.read_bytes() == b'second'
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ('written', 'read'),
    [
        ('~/x', '/h/x'),
        ('--out=~/x y', '--out=/h/x y'),
        ('load_from=~/a.pth', 'load_from=/h/a.pth'),
        ('~', '/h'),
        ('a~/b', 'a~/b'),
        ('mmdet::x/y', 'mmdet::x/y'),
        ('--norm', '--norm'),
        ('~no such user/x', '~no such user/x'),
    ],
)
def test_the_home_in_a_path_or_after_an_equals_sign(written, read, monkeypatch):
    monkeypatch.setenv('HOME', '/h')
    assert in_home(written) == read


def test_content_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Power may fail after a rename that the disk has, and before content that it has not."""
    path, seen, sync = tmp_path / 'a.pth', [], os.fsync

    def spied(file):
        seen.append((os.path.isdir(f'/proc/self/fd/{file}'), path.exists()))
        sync(file)

    monkeypatch.setattr('tokennorm.base.files.os.fsync', spied)
    write_atomically(path, b'content')
    assert seen == [(False, False), (True, True)]  # the file, then the folder with the new name


def test_output_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(UserError, match=r'is a folder; name a file'):
        check_output_file(tmp_path)
    with pytest.raises(UserError, match=r'cannot write to the folder .*file: .*; choose another one'):
        check_output_file(tmp_path / 'file' / 'a.json')
    make_output_dir(tmp_path / 'a' / 'b')
    assert list((tmp_path / 'a' / 'b').iterdir()) == []


@pytest.mark.parametrize(
    ('variables', 'expected'),
    [
        (dict(TOKENNORM_CACHE='~/own', XDG_CACHE_HOME='/xdg'), '/home/me/own'),
        (dict(XDG_CACHE_HOME='/xdg'), '/xdg/tokennorm'),
        (dict(XDG_CACHE_HOME='relative'), '/home/me/.cache/tokennorm'),  # which its standard says to ignore
        ({}, '/home/me/.cache/tokennorm'),
    ],
)
def test_the_place_of_the_cache(variables, expected, monkeypatch):
    for name in ('TOKENNORM_CACHE', 'XDG_CACHE_HOME'):
        monkeypatch.delenv(name, raising=False)
    for name, value in dict(HOME='/home/me', **variables).items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)


def test_json_has_null_for_what_is_not_finite():
    value = dict(a=float('nan'), b=[1.5, float('inf'), (-float('inf'), 'NaN', None, True)], c={'d': 2})
    assert json.loads(as_json(value)) == dict(a=None, b=[1.5, None, [None, 'NaN', None, True]], c={'d': 2})
    assert as_json(value['c'], indent=1) == json.dumps(value['c'], indent=1)
    with pytest.raises(TypeError):
        as_json(dict(a=object(), b=float('nan')))
    assert json.loads(as_json(dict(a=Path('x'), b=float('nan')), default=str)) == dict(a='x', b=None)


@pytest.fixture
def poor_user(tmp_path, monkeypatch):
    """A user without variables, whose temporary folder is `tmp_path / 't'`."""
    for name in ('HOME', 'XDG_CACHE_HOME', 'MPLCONFIGDIR', 'TOKENNORM_CACHE', 'USER', 'LOGNAME', 'LNAME', 'USERNAME'):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / 't').mkdir()
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path / 't'))
    return tmp_path / 't' / f'tokennorm-{os.getuid()}'


def no_such_user(number):
    raise KeyError(f'getpwuid(): uid not found: {number}')


def test_cache_without_a_home(poor_user, monkeypatch):
    monkeypatch.setattr('pwd.getpwuid', no_such_user)
    assert home_directory() is None
    assert cache_directory() == poor_user
    assert poor_user.stat().st_mode & 0o777 == 0o700
    assert cache_directory() == poor_user  # again


def test_cache_without_permission_in_home(poor_user, tmp_path, monkeypatch):
    home = tmp_path / 'home'
    home.mkdir()
    monkeypatch.setenv('HOME', str(home))
    assert cache_directory() == home / '.cache' / 'tokennorm'
    monkeypatch.setattr('os.access', lambda path, mode: Path(path) != home)
    assert cache_directory() == poor_user
    (home / '.cache').write_text('a file', encoding='utf-8')
    monkeypatch.setattr('os.access', lambda path, mode: True)
    assert cache_directory() == poor_user
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'x'))
    assert cache_directory() == tmp_path / 'x' / 'tokennorm'
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'y'))
    assert cache_directory() == tmp_path / 'y'


@pytest.mark.parametrize('taken', ['link', 'others may write', 'file'])
def test_a_temporary_folder_of_somebody_else_is_refused(poor_user, tmp_path, taken):
    (tmp_path / 'elsewhere').mkdir()
    if taken == 'link':
        poor_user.symlink_to(tmp_path / 'elsewhere')
    elif taken == 'file':
        poor_user.touch()
    else:
        poor_user.mkdir()
        poor_user.chmod(0o777)
    with pytest.raises(UserError, match='is not a folder of yours only; set TOKENNORM_CACHE'):
        temporary_directory()
