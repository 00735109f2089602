"""The command `tokennorm`: its subcommands, its help, what it imports, and its JSON."""

import json
import re
import subprocess
import sys
import time

import pytest

from tokennorm.cli.main import COMMANDS, main

FAST = ('train', 'test', 'predict', 'check', 'split', 'configs')


CONFIG = 'retinanet_pvt-mini-dtn_fpn_bccd'


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


@pytest.mark.parametrize(('words', 'key'), [(['weights'], 'url'), (['configs', 'retinanet_pvt-t_*'], 'AP: paper')])
def test_json_is_all_that_is_on_the_standard_output(words, key, capfd):
    main([*words, '--json'])
    out, err = capfd.readouterr()
    rows = json.loads(out)
    assert rows
    assert all(key in row for row in rows)
    assert len(err.splitlines()) > len(rows)


def test_the_commands_find_mistakes_before_they_import_torch():
    code = """
import sys
from importlib import import_module
for name, *words in (
    ['train', {config!r}, '--epochs', '0'],
    ['train', {config!r}, '--data', 'no_folder'],
    ['train', 'retinanet_pvt-mini-dnt_fpn_bccd'],
    ['test', 'none', 'none.pth'],
    ['predict', 'none', 'none.pth', 'image.jpg'],
    ['export', 'none', 'none.pth', 'out.onnx'],
    ['check', 'no_folder'],
    ['split', 'no_folder'],
):
    try:
        import_module(f'tokennorm.cli.{{name}}').main(words)
    except SystemExit as ended:
        assert str(ended.code).startswith('error: '), ended.code
        assert 'torch' not in sys.modules, name
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, '-c', code.format(config=CONFIG)], check=True)


def test_interruption_while_a_subcommand_is_imported_is_one_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr('tokennorm.cli.main.import_module', interrupted)
    with pytest.raises(SystemExit) as ended:
        main(['train'])
    assert ended.value.code == 130
    assert capsys.readouterr().err.splitlines() == ['', 'Interrupted.']
