"""Named or given sizes of a backbone: the `arch` argument."""

from collections.abc import Mapping
from math import inf
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
    if set(arch) - set(optional) != expected:
        raise ValueError(f'{owner}: arch has the keys {sorted(arch)}, expected {sorted(expected)}')
    lists = {key: arch[key] if per_stage else [arch[key]] for key in sorted(expected)}
    kind = f'a list with as many entries as depths, 1 to {MAX_STAGES}, each ' if per_stage else ''
    for key, values in lists.items():
        is_ratio = key == 'mlp_ratios'  # an MLP may be a fractional number of times as wide as the tokens
        is_list = isinstance(values, list | tuple) and len(values) == len(lists['depths']) <= MAX_STAGES
        if not (is_list and values and all(isinstance(v, Real if is_ratio else int) and 0 < v < inf for v in values)):
            number = 'a positive number' if is_ratio else 'an integer of at least 1'
            raise ValueError(f'{owner}: arch: {key}={arch[key]!r} must be {kind}{number}')
    for dims, num_heads in zip(lists['embed_dims'], lists['num_heads'], strict=True):
        if dims % num_heads:
            raise ValueError(f'{owner}: num_heads={num_heads} must divide embed_dims={dims}')
    return optional | dict(arch)
