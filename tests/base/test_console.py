"""What is printed: no control characters of the user's texts, no character that a stream lacks, no closed stream."""

import json
import logging
import os
import subprocess
import sys
import warnings

import pytest

from tests.helpers.cases import slow
from tokennorm.base.console import over_last_line, prepare_streams, say, table, visible
from tokennorm.base.messages import UserError
from tokennorm.cli.command import Parser, command

HOSTILE = 'cat\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202edog'
SHOWN = r'cat\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202edog'


@pytest.mark.parametrize('text', ['größe', '红色 グリーン 고양이', 'قطة', 'a\tb\nc', 'می‌خواهم', '👩‍🚀', '\udce9', ''])
def test_texts_of_any_script_stay(text):
    assert visible(text) == text


def test_control_characters_are_printed_as_escapes(capfd):
    say(HOSTILE, 1)
    say(HOSTILE, file=sys.stderr)
    over_last_line(HOSTILE)
    out, err = capfd.readouterr()
    assert out == f'{SHOWN} 1\n\r{SHOWN}'
    assert err == f'{SHOWN}\n'


def test_logs_and_warnings_have_no_control_characters(capfd):
    prepare_streams()
    handler = logging.StreamHandler(sys.stderr)
    logger = logging.getLogger('of a test')
    logger.addHandler(handler)
    logger.warning('class %s of %d', HOSTILE, 3)
    with warnings.catch_warnings():
        warnings.simplefilter('always')
        sys.stderr.write(warnings.formatwarning(HOSTILE, UserWarning, 'a.py', 1, ''))
    err = capfd.readouterr().err
    assert f'class {SHOWN} of 3' in err
    assert f'UserWarning: {SHOWN}' in err
    assert '\x1b' not in err


@pytest.mark.parametrize(
    'fails',
    [
        lambda argv: (_ for _ in ()).throw(UserError(f'class {HOSTILE}')),
        lambda argv: sys.exit(f'class {HOSTILE}'),
        lambda argv: Parser('').error(f'class {HOSTILE}'),
        lambda argv: (_ for _ in ()).throw(OSError(5, f'class {HOSTILE}')),
        lambda argv: (_ for _ in ()).throw(KeyboardInterrupt(f'class {HOSTILE}')),
        lambda argv: (_ for _ in ()).throw(ArithmeticError(f'class {HOSTILE}')),
    ],
    ids=['user error', 'exit', 'usage', 'system', 'interrupt', 'fault'],
)
def test_errors_have_no_control_characters(fails, capfd):
    with pytest.raises(SystemExit) as found:
        command(fails)(['--traceback'])
    shown = f'{found.value.code}\n{capfd.readouterr().err}'
    assert f'class {SHOWN}' in shown
    assert '\x1b' not in shown


PROGRAM = """
import json, logging, sys
from tokennorm.cli.command import command, print_json
from tokennorm.base.console import say

@command
def main(argv):
    say('größe 红色 \\udce9')
    print_json({'größe': float('nan')}) if '--json' in argv else None
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger('x').addHandler(handler)
    logging.getLogger('x').warning('红')
    with open(sys.argv[1], 'w', encoding='utf-8') as file:
        file.write('kept')

main(sys.argv[2:])
"""


@pytest.mark.parametrize('encoding', ['ascii', 'latin-1', 'gbk', 'utf-8'])
def test_characters_that_the_console_lacks_are_escaped(tmp_path, encoding):
    run = subprocess.run(
        [sys.executable, '-c', PROGRAM, tmp_path / 'out'],
        capture_output=True,
        env=os.environ | dict(PYTHONIOENCODING=encoding),
    )
    assert run.returncode == 0, run.stderr
    expected = 'größe 红色 \\udce9\n红\n'.encode(encoding, 'backslashreplace')
    assert run.stdout == expected


@pytest.mark.parametrize('closed', ['>&-', '2>&-', '<&- >&- 2>&-', '>&- 2>err', '> /dev/null'])
@pytest.mark.parametrize('json_too', ['', slow(' --json')])
def test_closed_streams_end_nothing_and_spill_nothing(tmp_path, closed, json_too):
    (tmp_path / 'program.py').write_text(PROGRAM, encoding='utf-8')
    line = f'{sys.executable} program.py out{json_too} {closed}'
    run = subprocess.run(['sh', '-c', line], cwd=tmp_path, capture_output=True)
    assert (run.returncode, b'Traceback' in run.stderr) == (0, False), run.stderr
    assert (tmp_path / 'out').read_text(encoding='utf-8') == 'kept'


def test_json_on_the_console_has_no_nan(tmp_path):
    run = subprocess.run([sys.executable, '-c', PROGRAM, tmp_path / 'out', '--json'], capture_output=True, text=True)
    assert json.loads(run.stdout) == {'größe': None}


def test_columns_are_aligned():
    """Numbers are at the right. A wide character takes two places, an accent none."""
    rows = [
        ('class', 'objects', 'AP'),
        ('猫', '7', '4.5'),
        ('cafe\u0301', '1,234', '-'),
        ('a\x1b', '', 'none'),
        ('\uff21\uff22', '8', '-'),
    ]
    assert table(rows).splitlines() == [
        'class  objects  AP',
        '猫           7  4.5',
        'cafe\u0301     1,234  -',
        'a\x1b           none',
        '\uff21\uff22         8  -',
    ]
