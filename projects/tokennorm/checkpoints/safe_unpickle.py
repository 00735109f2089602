"""Reads checkpoints without running any code of the file.

torch's `weights_only=True` reads tensors, numbers, strings and their containers. mmengine's runner also saves numpy's
numbers and arrays and its own histories of scalars. Placeholders record the arguments of these, and the data are built
from them afterwards: numpy's own constructors would follow an address in an array of objects. Objects of all other
classes, and results of functions, are read as empty dicts.
"""

import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from tokennorm.base.process import alone


class _StandIn:
    """Placeholder that records its arguments and state. `made` in a subclass returns the data that it replaces."""

    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self) -> Any:
        raise NotImplementedError


class _Dtype(_StandIn):
    def made(self) -> np.dtype:
        code, order = self.args[0], self.state[1] if self.state else '='
        if not re.fullmatch(r'[biuf]\d+', code) or order not in ('<', '>', '=', '|'):
            raise ValueError(f'numpy data of type {code} is not a number')
        return np.dtype(order + code)


class _Scalar(_StandIn):
    def made(self) -> np.generic:
        return np.frombuffer(self.args[1], self.args[0].made())[0]


class _Array(_StandIn):
    def made(self) -> np.ndarray:
        if self.state is None:
            raise ValueError('a numpy array has no content')
        _, shape, dtype, by_columns, content = self.state
        return np.frombuffer(content, dtype.made()).reshape(shape, order='F' if by_columns else 'C').copy()


class _History(_StandIn):
    def made(self) -> HistoryBuffer:  # whose statistics methods come from mmengine, not from the file
        log, count = (self.state[key].made() for key in ('_log_history', '_count_history'))
        return HistoryBuffer(log, count, self.state['max_length'])


class _Other:
    """Any other class or function."""

    def __new__(cls, *args: Any) -> OrderedDict:
        return OrderedDict()


def _no_bytes() -> bytes:
    return b''


_STAND_INS: list[Any] = [
    (_no_bytes, 'builtins.bytes'),
    (_History, 'mmengine.logging.history_buffer.HistoryBuffer'),
    (_Array, 'numpy.ndarray'),
    (_Dtype, 'numpy.dtype'),
    *((_Scalar, f'numpy.{core}.multiarray.scalar') for core in ('core', '_core')),
    *((_Array, f'numpy.{core}.multiarray._reconstruct') for core in ('core', '_core')),
]


def read_data(path: Path, map_location: Any) -> Any:
    """Returns what `torch.save` wrote, with dicts in place of objects of other classes."""
    with alone(), torch.serialization.safe_globals(_STAND_INS):  # a list of the process
        unknown: list[str] = []
        with suppress(ValueError):  # a file in torch's older format, without zip
            unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        with torch.serialization.safe_globals([(_Other, name) for name in unknown]):
            return _made(torch.load(path, map_location=map_location, weights_only=True))


def _made(content: Any, seen: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """Replaces placeholders by their data, in dicts and lists in place.

    `seen` has each container, which so keeps its id, and what was made of it.
    """
    seen = {} if seen is None else seen
    if isinstance(content, _StandIn):
        return content.made()
    if id(content) in seen:
        return seen[id(content)][1]
    if isinstance(content, dict):
        seen[id(content)] = content, content
        for name in set(getattr(content, '__dict__', ())) - {'_metadata'}:  # which would hide methods such as `items`
            del content.__dict__[name]
        for key, value in dict.items(content):
            dict.__setitem__(content, key, _made(value, seen))
    elif isinstance(content, list):
        seen[id(content)] = content, content
        content[:] = [_made(value, seen) for value in content]
    elif type(content) is tuple:
        seen[id(content)] = content, tuple(_made(value, seen) for value in content)
        return seen[id(content)][1]
    return content
