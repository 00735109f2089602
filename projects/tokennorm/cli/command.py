"""The frame of all subcommands: errors end with one line, and `--traceback` shows their traceback."""

import argparse
import builtins
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

_FLAG = '--traceback'
_VARIABLE = 'TOKENNORM_TRACEBACK'
_print = print
_NOISE = 'Could not import OneDL. Skipping OneDL datasets.'  # mmdet 3.5.1 prints it when mmdet is imported


def make_parser(description: str | None, **kwargs: object) -> argparse.ArgumentParser:
    """Returns a parser with `--traceback`.

    Args:
        description: The first paragraph is the description, the others follow the arguments. Line breaks stay.
        kwargs: Those of `argparse.ArgumentParser`.
    """
    first, _, rest = (description or '').partition('\n\n')
    kwargs.setdefault('formatter_class', argparse.RawDescriptionHelpFormatter)
    parser = argparse.ArgumentParser(description=first, epilog=rest or None, **kwargs)
    parser.add_argument(
        _FLAG, action='store_true', help=f'show the full traceback of an error; {_VARIABLE}=1 does the same'
    )
    return parser


def command(main: Callable[[list[str]], None]) -> Callable[[list[str] | None], None]:
    """Wraps the `main(argv)` of a subcommand that ends with one line: `--traceback` shows the traceback."""

    @wraps(main)
    def wrapped(argv: list[str] | None = None) -> None:
        argv = sys.argv[1:] if argv is None else argv
        warnings.filterwarnings('ignore', message='faster_coco_eval is not installed')  # nothing here needs it
        try:
            builtins.print = _print_without_noise
            main(argv)
        except SystemExit as ended:
            if isinstance(ended.code, str) and (_FLAG in argv or os.environ.get(_VARIABLE) == '1'):
                ended.__suppress_context__ = False
                traceback.print_exception(ended)
            raise
        finally:
            builtins.print = _print

    return wrapped


def _print_without_noise(*values: object, **kwargs: Any) -> None:
    if values != (_NOISE,):
        _print(*values, **kwargs)
