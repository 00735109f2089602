"""Checks of arguments that several commands have, before anything long begins."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tokennorm.base.files import in_home
from tokennorm.base.messages import UserError, did_you_mean, shorten


def path_of(name: str, value: Any) -> Path:
    """Returns a path, with `~` replaced by the home; an empty one, which is the working directory, is an error."""
    if not isinstance(value, str | Path) or not str(value).strip():
        raise UserError(f'{name} {value!r:.80} must be a path')
    return Path(in_home(str(value)))


def optional_path(name: str, value: Any) -> Path | None:
    """Returns a path as `path_of` does, or None for None."""
    return None if value is None else path_of(name, value)


def paths_of(name: str, value: Any) -> list[Path]:
    """Returns a path, or a list or tuple of paths, as a list; at least one."""
    values = [value] if isinstance(value, str | Path) else value
    if not isinstance(values, list | tuple) or not values:
        raise UserError(f'{name} {value!r:.80} must be a path, or a list of paths')
    return [path_of(name, one) for one in values]


def texts_of(name: str, value: Any) -> list[str]:
    """Returns a text, or several, as a list."""
    values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(one, str) for one in values):
        raise UserError(f'{name} {value!r:.80} must be a list of texts')
    return values


def codes_of(value: Any) -> list[str]:
    """Returns the codes of `--allow`, with all rules registered, by which `Findings` checks them."""
    if codes := texts_of('--allow', value):
        import tokennorm.engine.rules  # noqa: F401
    return codes


def check_at_least_one(name: str, value: Any) -> None:
    """Raises `UserError` for a value that is not an integer of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise UserError(f'{name} {value!r} must be an integer of at least 1')


def check_fraction(name: str, value: Any) -> None:
    """Raises `UserError` for a value that is not a number from 0 to 1."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= 1:
        raise UserError(f'{name} {value!r} must be a number from 0 to 1')


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises `UserError` for a value that is not one of several texts."""
    if value not in choices:
        raise UserError(f'{name} {value!r:.80}: expected {shorten(choices)}{did_you_mean(value, choices)}')


def check_mapping(name: str, value: Any) -> None:
    """Raises `UserError` for entries of a config that are not a dict."""
    if value is not None and not isinstance(value, Mapping):
        raise UserError(f"{name}={value!r:.80} must be a dict, such as {{'a.b.c': 1}}")
