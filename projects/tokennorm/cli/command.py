"""The frame of all subcommands: errors end with one line, and `--traceback` shows their traceback."""

import argparse
import builtins
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, NoReturn

from tokennorm.environment import PACKAGES
from tokennorm.messages import UserError, did_you_mean

IMPORTING = 'Importing PyTorch and OpenMMLab ...'  # which takes seconds
_FLAG = '--traceback'
_VARIABLE = 'TOKENNORM_TRACEBACK'
_print = print
_format_warning = warnings.formatwarning
_NOISE = (  # what upstream libraries print, and users cannot act on
    'Could not import OneDL',  # mmdet 3.5.1, mmpretrain and mmseg when they are imported
    *('loading annotations into memory...', 'Done (t=', 'creating index...', 'index created!'),  # pycocotools, per file
    'Loads checkpoint by ',  # mmengine, before its log line with the same path
)


class Parser(argparse.ArgumentParser):
    """A parser with `--traceback`, whose errors are one line with the name that was probably meant.

    It takes no empty argument: `Path('')` is the working directory.
    """

    def __init__(self, description: str | None) -> None:
        first, _, rest = (description or '').partition('\n\n')  # the examples come after the arguments
        super().__init__(description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument(
            _FLAG, action='store_true', help=f'show the full traceback of an error; {_VARIABLE}=1 does the same'
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        for before, word in zip(['', *words], words, strict=False):
            if not word.strip() or (word.startswith('--') and word.endswith('=')):
                self.error(f'an empty argument{before and f" after {before}"}; is a variable of the shell not set?')
        return super().parse_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        if wrong := re.match(r'unrecognized arguments: (--[\w-]+)', message):
            message += did_you_mean(wrong[1], re.findall(r'--[\w-]+', self.format_usage()), 0.75)
        elif wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(wrong[1], re.findall(r"[^\s',]+", wrong[2]))
        self.exit(2, f'error: {message}; `{self.prog} --help` lists the arguments\n')


def positive_integer(text: str) -> int:
    """Reads an argument that must be at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text} must be at least 1')
    return int(text)


def fraction(text: str) -> float:
    """Reads an argument that must be from 0 to 1."""
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f'{text} must be from 0 to 1')
    return float(text)


def command(main: Callable[[list[str]], None]) -> Callable[[list[str] | None], None]:
    """Wraps the `main(argv)` of a subcommand that ends with one line: `--traceback` shows the traceback."""

    @wraps(main)
    def wrapped(argv: list[str] | None = None) -> None:
        argv = sys.argv[1:] if argv is None else argv
        # mmengine's drawing; a box that ends at the border is drawn.
        warnings.filterwarnings('ignore', message='Warning: The (bbox|polygon|text) is out of bounds')
        warnings.filterwarnings('ignore', message='faster_coco_eval is not installed')  # mmdet when it is imported
        try:
            builtins.print = _print_without_noise
            warnings.formatwarning = lambda message, *others, **kwargs: f'warning: {message}\n'
            try:
                main(argv)
            finally:
                sys.stdout.flush()
        except (UserError, ImportError, SystemExit) as error:
            _end_with_one_line(error, show_traceback=_FLAG in argv or os.environ.get(_VARIABLE) == '1')
        except OSError as error:  # nobody reads the output any more, or it cannot be written
            with suppress(OSError, ValueError):  # no file, as in a notebook
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
            raise SystemExit(1 if isinstance(error, BrokenPipeError) else f'error: {error}') from error
        except KeyboardInterrupt as interrupt:
            raise SystemExit(f'\n{interrupt or "Interrupted."}') from None
        finally:
            builtins.print = _print
            warnings.formatwarning = _format_warning

    return wrapped


def _end_with_one_line(error: UserError | ImportError | SystemExit, show_traceback: bool) -> NoReturn:
    line = f'error: {error}'
    if isinstance(error, ImportError):
        if str(error.name).partition('.')[0] not in (*PACKAGES, 'cv2', 'yaml'):
            raise error
        line += '; `python -m tokennorm.cli.check_env` prints the command that fixes it'
    exits = isinstance(error, SystemExit)
    if show_traceback and not (exits and not isinstance(error.code, str)):
        error.__suppress_context__ = False
        traceback.print_exception(error)
    if exits:
        raise error
    raise SystemExit(line) from error


def _print_without_noise(*values: object, **kwargs: Any) -> None:
    if not (len(values) == 1 and str(values[0]).startswith(_NOISE)):
        _print(*values, **kwargs)
