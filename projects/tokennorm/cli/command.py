"""The frame of all subcommands: errors end with one line, and `--traceback` shows their traceback."""

import argparse
import builtins
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from tokennorm.environment import PACKAGES, require_mmcv_ops
from tokennorm.messages import UserError, did_you_mean

IMPORTING = 'Importing PyTorch and OpenMMLab ...'  # which takes seconds
_FLAG = '--traceback'
_VARIABLE = 'TOKENNORM_TRACEBACK'
_PACKAGE = str(Path(__file__).parents[1])
_print = print
_format_warning = warnings.formatwarning
_NOISE = (  # what upstream libraries print, and users cannot act on
    'Could not import OneDL',  # mmdet 3.5.1, mmpretrain and mmseg when they are imported
    *('loading annotations into memory...', 'Done (t=', 'creating index...', 'index created!'),  # pycocotools, per file
    'Loads checkpoint by ',  # mmengine, before its log line with the same path
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which takes no empty argument: `Path('')` is the working directory.

    It has `--traceback`, and so have its subparsers.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_argument(
            _FLAG, action='store_true', help=f'show the full traceback of an error; {_VARIABLE}=1 does the same'
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Ends with an error for an unknown argument, which argparse passes from a subparser to its parent."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f'unrecognized arguments: {" ".join(unknown)}')
        return found, unknown

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        for before, word in zip(['', *words], words, strict=False):
            if not word.strip() or (word.startswith('--') and word.endswith('=')):
                self.error(f'an empty argument{before and f" after {before}"}; is a variable of the shell not set?')
        return super().parse_args(words, namespace)

    def group(self, title: str) -> Any:
        """Returns the group of arguments with this title, which `--help` shows; a new one the first time."""
        groups = self.__dict__.setdefault('groups', {})
        if title not in groups:
            groups[title] = self.add_argument_group(title)
        return groups[title]

    def error(self, message: str) -> NoReturn:
        if wrong := re.match(r'unrecognized arguments: (--[\w-]+)', message):
            message += did_you_mean(wrong[1], re.findall(r'--[\w-]+', self.format_usage()), 0.75)
        elif wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(wrong[1], re.findall(r"[^\s',]+", wrong[2]))
        self.exit(2, f'error: {message}; `{self.prog} --help` lists the arguments\n')


def make_parser(description: str | None, groups: Iterable[str] = ()) -> Parser:
    """Returns a parser of a subcommand.

    The first paragraph of the description comes before the arguments, the others, such as examples, after them, with
    their line breaks. `groups` are the titles of groups of arguments in the order of `--help`.
    """
    first, _, rest = (description or '').partition('\n\n')
    kind = argparse.RawDescriptionHelpFormatter
    parser = Parser(description=first, epilog=rest or None, formatter_class=kind)
    for title in groups:
        parser.group(title)
    return parser


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
            warnings.formatwarning = _format_own_warning
            with output_flushed(), _missing_packages_named():
                main(argv)
        except (UserError, SystemExit) as ended:
            is_error = isinstance(ended, UserError) or isinstance(ended.code, str)
            if is_error and (_FLAG in argv or os.environ.get(_VARIABLE) == '1'):
                ended.__suppress_context__ = False
                traceback.print_exception(ended)
            if isinstance(ended, UserError):
                raise SystemExit(f'error: {ended}') from ended
            raise
        except KeyboardInterrupt as interrupt:
            raise SystemExit(f'\n{interrupt or "Interrupted."}') from None
        finally:
            builtins.print = _print
            warnings.formatwarning = _format_warning

    return wrapped


@contextmanager
def output_flushed() -> Iterator[None]:
    """Ends the program quietly where nobody reads its output any more, and in one line where it cannot be written."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # no file, as in a notebook
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        raise SystemExit(1 if isinstance(error, BrokenPipeError) else f'error: {error}') from error


@contextmanager
def _missing_packages_named() -> Iterator[None]:
    """Ends the program with what to install where torch or a package of OpenMMLab is missing or incomplete."""
    try:
        yield
    except ImportError as error:
        name = str(error.name).partition('.')[0]
        if name in (*PACKAGES, 'yaml') and find_spec(name) is None:
            raise SystemExit(
                f'error: {name} is not installed. Install torch, then onedl-mmcv with --no-build-isolation, then '
                '`pip install ".[mm]"` in the repository, in this order'
            ) from error
        if name != 'mmcv':
            raise
        try:
            require_mmcv_ops()
        except RuntimeError as problem:
            raise SystemExit(f'error: {problem}') from error
        raise


def _format_own_warning(message: Any, category: type[Warning], filename: str, *others: Any) -> str:
    """Formats a warning of this package for its user, without the line of code that raised it."""
    if category is UserWarning and filename.startswith(_PACKAGE):
        return f'warning: {message}\n'
    return _format_warning(message, category, filename, *others)


def _print_without_noise(*values: object, **kwargs: Any) -> None:
    if not (len(values) == 1 and str(values[0]).startswith(_NOISE)):
        _print(*values, **kwargs)
