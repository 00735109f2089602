"""The command `tokennorm`: its subcommands, its help, its errors with and without a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest
import torch

from tokennorm.cli.command import Parser, command, import_openmmlab
from tokennorm.cli.configs import config_rows
from tokennorm.cli.main import COMMANDS, main

FAST = ('train', 'test', 'predict', 'check', 'split', 'configs')


def test_help_lists_the_subcommands(capsys):
    main([])
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f'\n  {name} ' in text


def test_help_imports_neither_torch_nor_openmmlab():
    code = f"""
import sys
from tokennorm.cli.main import main
for name in {FAST}:
    try:
        main([name, '--help'])
    except SystemExit as ended:
        assert ended.code == 0
print([name for name in ('torch', 'mmengine', 'mmcv', 'mmdet', 'cv2', 'numpy') if name in sys.modules])
"""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == '[]'
    assert 'usage: tokennorm train' in done.stdout
    assert '--cfg-options KEY=VALUE' in done.stdout
    assert not done.stderr
    assert time.perf_counter() - start < 10  # a fraction of a second on a quiet machine


@pytest.mark.parametrize('name', sorted(COMMANDS))
def test_help_has_examples_of_existing_options(name, capsys):
    with pytest.raises(SystemExit, match='0'):
        main([name, '--help'])
    text = capsys.readouterr().out
    before, _, examples = text.partition('\nexamples:\n')
    assert all(line.startswith(f'  tokennorm {name}') for line in examples.splitlines())
    assert examples
    assert {word for word in examples.split() if word.startswith('--')} <= set(re.findall(r'--[a-z-]+', before))


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, '-m', 'tokennorm', '--version'], capture_output=True, text=True, check=True)
    assert done.stdout.startswith('tokennorm 1.')


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


def test_configs_show_what_the_metafiles_have():
    (row,) = config_rows('pvt/retinanet_pvt-t-dtn_fpn_1x_coco')
    assert row[:3] == ('pvt/retinanet_pvt-t-dtn_fpn_1x_coco', 'DTN', 'plain')
    assert row[3:] == ('23.0', '223.3', '38.0', '-')
    assert config_rows('trial/retinanet_pvt-mini-local_fpn')[0][1] == 'LocalLayerNorm'
    assert config_rows('mask-rcnn_swin-t-p4-w7_fpn_1x_coco')[0][-1] == '46.0 / 41.6'
    with pytest.raises(SystemExit, match=r"no config matches 'retinanett' \(did you mean retinanet\?\)"):
        main(['configs', 'retinanett'])


def test_a_missing_package_is_one_line(monkeypatch):
    def imports(name):
        return command(lambda argv: import_module(name))

    monkeypatch.setitem(sys.modules, 'mmdet', None)
    with pytest.raises(SystemExit, match=r'^error: .*mmdet.*; `python -m tokennorm.cli.check_env` prints the command'):
        imports('mmdet')([])
    monkeypatch.setitem(sys.modules, 'hotcoco', None)  # of an extra
    with pytest.raises(SystemExit, match=r'^error: .*hotcoco.*; `.* install hotcoco`'):
        imports('hotcoco')([])
    with pytest.raises(SystemExit, match='this is a fault of TokenNorm'):
        imports('no_such_module')([])


def test_packages_that_do_not_fit_each_other_are_one_line(monkeypatch):
    monkeypatch.setattr('tokennorm.cli.command.check_mmcv_ops', lambda: [].COLOR_BGR2RGB)
    with pytest.raises(SystemExit, match=r'^error: AttributeError: .*COLOR_BGR2RGB.*; `python -m .*check_env`'):
        command(lambda argv: import_openmmlab())([])


def test_a_fault_of_the_program_has_a_traceback_and_asks_to_report_it(capsys):
    with pytest.raises(SystemExit, match=r'^error: this is a fault of TokenNorm, .* please report it'):
        command(lambda argv: [][1])([])
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
    def fails(argv):
        raise error

    with pytest.raises(SystemExit, match=f'^error: {line}'):
        command(fails)([])


class Killed(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_that_reads_images_is_named():
    with pytest.raises(SystemExit, match=r'^error: .* \(pid .*: the system ended a process that reads'):
        command(lambda argv: list(torch.utils.data.DataLoader(Killed(), num_workers=1)))([])


@pytest.mark.parametrize(('words', 'key'), [(['weights'], 'url'), (['configs', 'retinanet_pvt-t_*'], 'AP: paper')])
def test_json_is_all_that_is_on_the_standard_output(words, key, capfd):
    main([*words, '--json'])
    out, err = capfd.readouterr()
    rows = json.loads(out)
    assert rows
    assert all(key in row for row in rows)
    assert len(err.splitlines()) > len(rows)
