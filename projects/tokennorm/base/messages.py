"""Messages: the name that was probably meant, shortened lists, and errors in one line."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

Function = TypeVar('Function', bound=Callable)


class UserError(RuntimeError):
    """An error that the user can fix. Its text says what is wrong, what was expected and what to do.

    The command line prints it in one line and exits.
    """


@contextmanager
def user_errors(*kinds: type[Exception], where: str = '') -> Iterator[None]:
    """Turns errors of these kinds into `UserError`; `where` precedes the error's own text, of a `UserError`, too."""
    try:
        yield
    except BrokenPipeError:  # a closed pipe: nobody reads the error either
        raise
    except kinds as error:
        if isinstance(error, UserError) and not where:
            raise
        raise UserError(f'{where}{error}') from error


def in_python(function: Function) -> Function:
    """Has errors of a command's function name its keyword arguments, `image_size` for `--image-size`.

    The command itself calls the function without this. Commands in backticks stay as they are.
    """

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            known = signature(called).parameters
            error.args = (_OPTION.sub(lambda found: _keyword(found, known), str(error)), *error.args[1:])
            raise

    return called  # type: ignore[return-value]


_OPTION = re.compile(r'`[^`]*`|--([a-z][a-z0-9-]*)')


def _keyword(found: re.Match, known: Iterable[str]) -> str:
    name = (found[1] or '').replace('-', '_')
    return name if name in known else found[0]


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns ' (did you mean X?)' with the nearest known name, or '' if none is near.

    An anagram of the name takes precedence over other candidates. The cutoff is `difflib`'s minimum similarity, from 0
    to 1.
    """
    known = list(known)
    same_letters = [candidate for candidate in known if sorted(str(name).lower()) == sorted(candidate.lower())]
    near = same_letters or difflib.get_close_matches(str(name), known, n=1, cutoff=cutoff)
    return f' (did you mean {near[0]}?)' if near else ''


def shorten(names: Sequence[str], most: int = 8) -> str:
    """Joins the first `most` names, 'a, b, c', and says how many follow."""
    more = f' and {len(names) - most} more' if len(names) > most else ''
    return ', '.join(names[:most]) + more


def counted(number: float, noun: str) -> str:
    """Returns '1 image', '2 images' or '2 classes'."""
    shown = f'{number:g}' if isinstance(number, float) else number
    return f'{shown} {noun}{"" if number == 1 else "es" if noun.endswith("s") else "s"}'


class IncompleteWarning(UserWarning):
    """Some of the inputs were left out. The command line ends with an error instead."""
