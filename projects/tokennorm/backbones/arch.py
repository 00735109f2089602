"""Named or given sizes of a backbone: the `arch` argument."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

from tokennorm.messages import did_you_mean

MAX_STAGES = 4
Arch = Mapping[str, Any]


def resolve_arch(
    owner: str, archs: Mapping[str, Arch], arch: str | Arch, per_stage: bool = True, **optional: Any
) -> dict[str, Any]:
    """Returns the row of `archs` with the name `arch`, or a given dict with the keys of a row, checked.

    With `per_stage` each entry is a list with one number per stage, otherwise one number. `optional` are entries that a
    row may leave out, with their defaults; they are not checked. The `owner` is the backbone's name, for messages.
    """
    if isinstance(arch, str) and arch in archs:
        return optional | dict(archs[arch])
    if not isinstance(arch, Mapping):
        meant = did_you_mean(arch, archs) if isinstance(arch, str) else ''
        raise ValueError(f'{owner}: arch={arch!r} must be one of {", ".join(archs)} or a dict{meant}')
    expected = set(next(iter(archs.values()))) - set(optional)
    given = set(arch) - set(optional)
    if given != expected:
        raise ValueError(f'{owner}: arch has the keys {sorted(given)}, expected {sorted(expected)}')
    if per_stage:
        _check_lists(owner, {key: arch[key] for key in expected})
    numbers = {key: tuple(arch[key]) if per_stage else (arch[key],) for key in arch if key in expected}
    for key, values in numbers.items():
        _check_numbers(owner, key, values if per_stage else values[0], values)
    for dims, num_heads in zip(numbers['embed_dims'], numbers['num_heads'], strict=True):
        if dims % num_heads:
            raise ValueError(f'{owner}: num_heads={num_heads} must divide embed_dims={dims}')
    return optional | dict(arch) | {key: values if per_stage else values[0] for key, values in numbers.items()}


def _check_lists(owner: str, lists: Mapping[str, Any]) -> None:
    for key, values in lists.items():
        if not isinstance(values, list | tuple):
            raise ValueError(f'{owner}: arch: {key}={values!r} must be a list with one entry per stage')
    lengths = {key: len(lists[key]) for key in sorted(lists)}
    if len(set(lengths.values())) > 1 or not 1 <= lengths['depths'] <= MAX_STAGES:
        raise ValueError(f'{owner}: arch needs one entry per stage in each list, 1 to {MAX_STAGES} stages: {lengths}')


def _check_numbers(owner: str, key: str, given: Any, values: tuple[Any, ...]) -> None:
    """An MLP may be a fractional number of times as wide as the tokens; the other numbers are integers."""
    if key.startswith('mlp_ratio'):
        if not all(isinstance(value, Real) and 0 < value < float('inf') for value in values):
            raise ValueError(f'{owner}: arch: {key}={given} must be positive')
    elif not all(isinstance(value, int) and value >= 1 for value in values):
        raise ValueError(f'{owner}: arch: {key}={given} must be integers of at least 1')
