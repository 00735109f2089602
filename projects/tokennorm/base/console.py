"""What is printed: texts of the user's files without control characters, on streams that accept every character.

A class name or a file name may hold escape sequences, which would move the cursor, rename the window or hide lines of
a terminal. The package prints with `say`; ruff's rule T201 keeps it from printing otherwise.
"""

import logging
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_CONTROL = {  # C0 and C1 without tab and newline; marks that turn the direction of the text that follows
    code: ascii(chr(code))[1:-1]
    for code in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def visible(text: str) -> str:
    r"""Returns a text with its control characters as escapes, such as `\x1b`; tabs and newlines stay."""
    return text.translate(_CONTROL)


def say(*values: Any, end: str = '\n', file: Any = None) -> None:
    """Prints values as `print` does, without control characters, at once.

    `end` is printed as it is. By default the file is the standard output.
    """
    print(visible(' '.join(map(str, values))), end=end, file=file, flush=True)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows, of which the first is the header, as lines with aligned columns, those of numbers at the right."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    right = [all(re.fullmatch(r'[-+\d.,%/ ]*', cell) for cell in column[1:]) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        gaps = [' ' * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = (gap + cell if is_number else cell + gap for cell, gap, is_number in zip(row, gaps, right, strict=True))
        lines.append('  '.join(cells).rstrip())
    return '\n'.join(lines)


def _width(text: str) -> int:
    """The columns of a terminal that a text takes: two for each Chinese, Japanese or Korean character."""
    shown = (one for one in visible(text) if not unicodedata.combining(one))
    return sum(1 + (unicodedata.east_asian_width(one) in 'WF') for one in shown)


def over_last_line(text: str) -> None:
    """Prints a text in place of the last line of a terminal, which has no newline yet."""
    print(f'\r{visible(text)}', end='', flush=True)


class _VisibleRecord(logging.LogRecord):
    """A record of a log, whose message has no control characters."""

    def getMessage(self) -> str:
        return visible(super().getMessage())


def prepare_streams() -> None:
    """Makes this process's streams, logs and warnings accept every text.

    - A standard stream that is closed is replaced by one without a reader, so that no file gets its number.
    - A character that the encoding of a stream lacks is printed as an escape, such as `\\u7ea2`.
    - Messages of logs and warnings have no control characters.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        with suppress(OSError):
            while (number := os.open(os.devnull, os.O_RDWR)) < 3:
                os.set_inheritable(number, True)
            os.close(number)
    for name in ('stdout', 'stderr'):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, 'w', encoding='utf-8')  # noqa: SIM115
            setattr(sys, name, nowhere)
            setattr(sys, f'__{name}__', nowhere)
        with suppress(AttributeError, ValueError, OSError):  # no text file of Python, as in a notebook
            getattr(sys, name).reconfigure(errors='backslashreplace')
    logging.setLogRecordFactory(_VisibleRecord)
    warnings.formatwarning = _format_warning


def _format_warning(message: Any, category: Any, filename: str, lineno: int, line: str | None = None) -> str:
    return visible(_formatwarning(message, category, filename, lineno, line))


_formatwarning = warnings.formatwarning
