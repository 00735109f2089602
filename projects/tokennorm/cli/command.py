"""The frame of all subcommands: their parser, and how they end."""

import argparse
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout, suppress
from functools import wraps
from inspect import signature, unwrap
from typing import Any, NoReturn

from tokennorm.base.console import prepare_streams, say, visible
from tokennorm.base.cores import let_threads_sleep
from tokennorm.base.environment import OPTIONAL, PACKAGES, PIP, Fault
from tokennorm.base.files import as_json, in_home
from tokennorm.base.messages import IncompleteWarning, UserError, did_you_mean
from tokennorm.base.ranks import is_first_process
from tokennorm.cli.faults import verdict, way_out
from tokennorm.commands.result import Result

INTERRUPTED = 130  # exit status, as of a program that Ctrl+C ended
_FLAG = '--traceback'
_VARIABLE = 'TOKENNORM_TRACEBACK'
_SMALLER = 'lower --batch-size or --image-size'
_SHARED = 'give the container more shared memory (docker run --shm-size=8g), or use --workers 0'
_ADVICE = {  # for what the machine or the environment lacks, by a part of the message
    **dict.fromkeys(('out of shared memory', 'unable to write to file </torch_'), _SHARED),
    'signal: Killed': 'the system ended a process that reads images, often for lack of memory: lower --workers',
    **dict.fromkeys(('is killed by signal', 'exited unexpectedly'), '--workers 0 shows what ended it'),
    **dict.fromkeys(('MemoryError', 'out of memory', 'not enough memory', 't allocate memory'), _SMALLER),
    '_ALLOC_FAILED': _SMALLER,
    'Too many open files': 'raise `ulimit -n`, or lower --workers',
    'CUBLAS_WORKSPACE_CONFIG': 'export CUBLAS_WORKSPACE_CONFIG=:4096:8',
}
SYNONYMS = {  # of Ultralytics and mmdet
    **{'--imgsz': '--image-size', '--conf': '--score-thr', '--batch': '--batch-size', '--source': '--data'},
    **{'--weights': '--init', '--pretrained': '--init', '--lr0': '--lr', '--save-dir': '--out'},
    **dict.fromkeys(('--project', '--name', '--work-dir'), '--out'),
}


class Parser(argparse.ArgumentParser):
    """A parser with `--traceback`, whose errors are one line with the name that was probably meant.

    It takes no empty argument: `Path('')` is the working directory.
    """

    def __init__(self, description: str | None) -> None:
        first, _, rest = (description or '').partition('\n\n')  # the examples come after the arguments
        super().__init__(
            description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        self.add_argument(
            _FLAG, action='store_true', help=f'show the full traceback of an error; {_VARIABLE}=1 does the same'
        )
        self.is_input: Callable[[str], bool] = lambda word: False  # of commands that take a detector first
        self._words: list[str] = []

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = words = list(map(in_home, sys.argv[1:] if args is None else args))
        option = ''
        for before, word in zip(['', *words], words, strict=False):
            option = word if word.startswith('--') else option
            if not word.strip() or (word.startswith('--') and word.endswith('=')):
                self.error(f'an empty argument{before and f" after {before}"}; is a variable of the shell not set?')
            key, _, value = word.partition('=')
            name = self._option(f'--{key.replace("_", "-")}') if value and option != '--cfg-options' else ''
            if name and value not in (choices := self._option_string_actions[name].choices or [value]):
                self.error(f'{word}: options begin with --, and {name} is one of {", ".join(choices)}')
            if name:
                self.error(f'{word}: options begin with --: {name} {value}')
        return super().parse_args(words, namespace)

    def _option(self, name: str) -> str:
        """The option of this name, or with this name in other programs; '' if there is none."""
        return next((one for one in (name, SYNONYMS.get(name, '')) if one in self._option_string_actions), '')

    def _first(self) -> str:
        """The first argument; where options come first, the last one, if it is not the value of an option."""
        words = ['', *self._words]
        if len(words) > 1 and not words[1].startswith('--'):
            return words[1]
        return '' if words[-2:][0].startswith('--') else words[-1]

    def error(self, message: str) -> NoReturn:
        if wrong := re.match(r'unrecognized arguments: (--[\w-]+)', message):
            same = self._option(wrong[1])
            message += f' (did you mean {same}?)' if same else did_you_mean(wrong[1], self._option_string_actions, 0.75)
        elif wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(wrong[1], re.findall(r"[^\s',]+", wrong[2]))
        elif message.startswith('the following arguments are required') and self.is_input(word := self._first()):
            message = f'{word} is not a detector: name one before it, `{self.prog} WORK_DIR {word}`'
        self.exit(2, visible(f'error: {message}; `{self.prog} --help` lists the arguments\n'))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`, for `show`."""
    parser.add_argument('--json', action='store_true', help='print the result as JSON, everything else to stderr')


def print_json(value: Any) -> None:
    """Prints a result as JSON to the standard output, which `command` keeps free of anything else."""
    say(as_json(value, indent=2, default=str), file=sys.__stdout__)


def call(function: Callable, args: argparse.Namespace) -> Any:
    """Calls a command's function with its arguments; errors name the options of the command."""
    return unwrap(function)(**{name: getattr(args, name) for name in signature(function).parameters})


def show(result: Result, args: argparse.Namespace) -> None:
    """Prints a result, in rank 0, and with `--json` its values to the standard output."""
    if is_first_process():
        if args.json:
            print_json(result.as_dict())
        if result.lines:
            say(result)


def positive_integer(text: str) -> int:
    """Reads an argument that must be at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text} must be at least 1')
    return int(text)


def command(main: Callable[[list[str]], None]) -> Callable[[list[str] | None], None]:
    """Wraps the `main(argv)` of a subcommand: an error of the user ends it with one line, others with a traceback.

    `--traceback` shows the traceback of the user's errors, too.
    """

    @wraps(main)
    def wrapped(argv: list[str] | None = None) -> None:
        argv = sys.argv[1:] if argv is None else argv
        shows_traceback = _FLAG in argv or os.environ.get(_VARIABLE) == '1'
        prepare_streams()
        let_threads_sleep()
        try:
            quiet = redirect_stdout(sys.stderr) if '--json' in argv else nullcontext()
            with quiet, warnings.catch_warnings():  # of mmengine's drawing; a box that ends at the border is drawn
                warnings.simplefilter('ignore', IncompleteWarning)  # the command ends with an error
                warnings.filterwarnings('ignore', message='Warning: The (bbox|polygon|text) is out of bounds')
                main(argv)
            sys.stdout.flush()
        except (UserError, Fault, ImportError, SystemExit) as error:
            _end_with_one_line(error, shows_traceback)
        except OSError as error:  # nobody reads the output any more, or it cannot be written
            with suppress(OSError, ValueError):  # no file, as in a notebook
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
            line = visible(f'error: {_with_advice(error) or error}')
            raise SystemExit(1 if isinstance(error, BrokenPipeError) else line) from error
        except KeyboardInterrupt as interrupt:
            _end_interrupted(interrupt)
        except Exception as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # mmengine's formatter of configs hides it
                _end_interrupted(error.__context__)
            if text := _with_advice(error) or way_out(error):
                _end_with_one_line(UserError(text), shows_traceback)
            _end_unexpectedly(error)

    return wrapped


def _end_interrupted(interrupt: BaseException) -> NoReturn:
    if is_first_process():
        say(f'\n{str(interrupt) or "Interrupted."}', file=sys.stderr)
    raise SystemExit(INTERRUPTED) from None


def _end_unexpectedly(error: Exception) -> NoReturn:
    _print_traceback(error)
    raise SystemExit(visible(f'error: {verdict(error)}')) from error


def _print_traceback(error: BaseException) -> None:
    say(''.join(traceback.format_exception(error)), end='', file=sys.stderr)


def _with_advice(error: Exception) -> str:
    """The line of an error that says what happened, with what to do; '' for an error without advice."""
    lines = []
    for one in filter(None, (error, error.__cause__)):  # the signal that ended a data worker is in the cause only
        first, *others = str(one).strip().splitlines() or ['']
        inner = others[-1].strip() if others and first.startswith('Caught ') else ''  # of a data worker
        lines.append(inner or f'{type(one).__name__}: {first}'.removesuffix(': '))
    return next((f'{line}: {_ADVICE[part]}' for part in _ADVICE for line in lines if part in line), '')


def _end_with_one_line(error: UserError | Fault | ImportError | SystemExit, show_traceback: bool) -> NoReturn:
    line = f'error: {error}'
    if isinstance(error, ImportError) and not isinstance(error, UserError):
        package = str(error.name).partition('.')[0]
        if package not in (*PACKAGES, *OPTIONAL, 'cv2', 'yaml'):
            _end_unexpectedly(error)
        if package in OPTIONAL:
            line += f'; `{PIP} install {package}`'
        else:
            line += '; `python -m tokennorm.cli.check_env` prints the command that fixes it'
    exits = isinstance(error, SystemExit)
    if show_traceback and not (exits and not isinstance(error.code, str)):
        error.__suppress_context__ = False
        _print_traceback(error)
    if exits:
        if isinstance(error.code, str):
            error.code = visible(error.code)
        raise error
    raise SystemExit(visible(line)) from error
