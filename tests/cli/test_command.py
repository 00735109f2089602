"""Each command: errors in one line, faults with a traceback, and how OpenMP's threads wait."""

import os
import signal
import sys
from importlib import import_module

import pytest
import torch

from tests.helpers.code_of import own_code
from tokennorm.cli.command import Parser, command
from tokennorm.commands.importing import import_openmmlab


@command
def fails(argv):
    Parser('Fails.').parse_args(argv)
    try:
        raise KeyError('inner')
    except KeyError:
        raise SystemExit('error: one line') from None


def test_an_error_is_one_line_and_its_traceback_one_flag_away(capsys, monkeypatch):
    monkeypatch.delenv('TOKENNORM_TRACEBACK', raising=False)
    with pytest.raises(SystemExit, match=r'^error: one line$'):
        fails([])
    assert not capsys.readouterr().err
    with pytest.raises(SystemExit, match=r'^error: one line$'):
        fails(['--traceback'])
    assert "KeyError: 'inner'" in capsys.readouterr().err
    monkeypatch.setenv('TOKENNORM_TRACEBACK', '1')
    with pytest.raises(SystemExit, match=r'^error: one line$'):
        fails([])
    assert "KeyError: 'inner'" in capsys.readouterr().err


@pytest.mark.parametrize('interrupt', [KeyboardInterrupt(), KeyboardInterrupt('Interrupted. Checkpoints so far')])
def test_an_interruption_ends_with_its_own_status_and_is_said_once(interrupt, monkeypatch, capsys):
    def raises(argv):
        raise interrupt

    for rank in '01':
        monkeypatch.setenv('RANK', rank)
        with pytest.raises(SystemExit) as ends:
            command(raises)([])
        assert ends.value.code == 130
    assert capsys.readouterr().err.count('Interrupted.') == 1


def test_an_interruption_that_another_error_hides_is_one():
    def raises(argv):
        try:
            raise KeyboardInterrupt
        except BaseException:
            raise SyntaxError('Failed to format the config file')  # noqa: B904 - as mmengine does

    with pytest.raises(SystemExit) as ends:
        command(raises)([])
    assert ends.value.code == 130


def test_a_missing_package_is_one_line(monkeypatch):
    def imports(name):
        return command(own_code('import_module(name)', import_module=import_module, name=name))

    monkeypatch.setitem(sys.modules, 'mmdet', None)
    with pytest.raises(SystemExit, match=r'^error: .*mmdet.*; `python -m tokennorm.cli.check_env` prints the command'):
        imports('mmdet')([])
    monkeypatch.setitem(sys.modules, 'hotcoco', None)  # of an extra
    with pytest.raises(SystemExit, match=r'^error: .*hotcoco.*; `.* install hotcoco`'):
        imports('hotcoco')([])
    with pytest.raises(SystemExit, match='this is a fault of TokenNorm'):
        imports('no_such_module')([])


def test_packages_that_do_not_fit_each_other_are_one_line(monkeypatch):
    monkeypatch.setattr('tokennorm.commands.importing.check_mmcv_ops', lambda: [].COLOR_BGR2RGB)
    with pytest.raises(SystemExit, match=r'^error: AttributeError: .*COLOR_BGR2RGB.*; `python -m .*check_env`'):
        command(lambda argv: import_openmmlab())([])


def test_a_fault_of_the_program_has_a_traceback_and_asks_to_report_it(capsys):
    with pytest.raises(SystemExit, match=r'^error: this is a fault of TokenNorm, .* please report it'):
        command(own_code('[][1]'))([])
    assert 'IndexError: list index out of range' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('error', 'line'),
    [
        (torch.OutOfMemoryError('CUDA out of memory. Tried\nmore'), 'OutOfMemoryError: CUDA.* Tried: lower --batch'),
        (MemoryError(), 'MemoryError: lower --batch-size or --image-size'),
        (MemoryError('Unable to allocate 23 GiB'), 'MemoryError: Unable to allocate 23 GiB: lower --batch-size'),
        (MemoryError('std::bad_alloc'), 'MemoryError: std::bad_alloc: lower --batch-size'),
        (OSError(24, 'Too many open files', 'a.jpg'), r'.*Too many open files: .a.jpg.: raise `ulimit -n`'),
        (RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling'), '.*: lower --batch-size'),
        (RuntimeError('DataLoader worker (pid 1) is killed by signal: Bus error. It is possible that dataloader '
                      "workers are out of shared memory"), '.*out of shared memory: give the container more'),
        (RuntimeError('DataLoader worker (pid 1) is killed by signal: Killed.'), '.*: the system ended a process'),
        (RuntimeError('DataLoader worker (pid 1) is killed by signal: Segmentation fault.'), '.*: --workers 0 shows'),
        (RuntimeError('Caught MemoryError in DataLoader worker process 0.\n MemoryError'), 'MemoryError: lower --b'),
        (RuntimeError('Caught ValueError in DataLoader worker process 0.\n MemoryError\nV: 2'), 'this is a fault'),
        (RuntimeError('HIP out of memory. Tried'), 'RuntimeError: HIP out of memory. Tried: lower --batch-size'),
        (KeyError('Caught KeyError in DataLoader worker process 0.'), 'this is a fault of TokenNorm'),
        (RuntimeError('out of resource: shared memory, Required: 1'), 'this is a fault of TokenNorm'),
    ],
)  # fmt: skip
def test_what_the_machine_lacks_is_not_called_a_fault(error, line):
    with pytest.raises(SystemExit, match=f'^error: {line}'):
        command(own_code('raise error', error=error))([])


class Killed(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_that_reads_images_is_named():
    with pytest.raises(SystemExit, match=r'^error: .* \(pid .*: the system ended a process that reads'):
        command(lambda argv: list(torch.utils.data.DataLoader(Killed(), num_workers=1)))([])


@pytest.mark.parametrize(
    ('given', 'expected'),
    [
        ({}, {'GOMP_SPINCOUNT': '1000'}),
        ({'GOMP_SPINCOUNT': '7'}, {'GOMP_SPINCOUNT': '7'}),
        ({'OMP_WAIT_POLICY': 'active'}, {'OMP_WAIT_POLICY': 'active'}),
    ],
)
def test_the_users_variables_take_precedence(given, expected, monkeypatch):
    monkeypatch.setattr(os, 'environ', dict(given))
    seen = []
    command(lambda argv: seen.append(dict(os.environ)))([])
    assert seen == [expected]
