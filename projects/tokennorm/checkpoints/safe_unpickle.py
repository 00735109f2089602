"""Reads the data that checkpoints hold besides tensors, without running any code of the file.

torch's `weights_only=True` reads tensors, numbers, strings and their containers. mmengine's runner also saves numpy's
numbers and arrays and its own histories of scalars. For these mmengine allows numpy's constructors, which would follow
an address in an array of objects, and `getattr`, which finds any function. Here placeholders only record their
arguments; the data are built from these afterwards.
"""

import re
from collections import OrderedDict
from typing import Any

import numpy as np
from mmengine.logging import HistoryBuffer


class _StandIn:
    """Placeholder that records its arguments. `made` in a subclass returns the data that it replaces."""

    args: tuple = ()
    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self) -> Any:
        raise ValueError('a function is not data')


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


def _no_bytes() -> bytes:
    return b''


STAND_INS: list[Any] = [  # for `torch.serialization.safe_globals`
    (_no_bytes, 'builtins.bytes'),
    (_StandIn, 'builtins.getattr'),
    (_History, 'mmengine.logging.history_buffer.HistoryBuffer'),
    (_Array, 'numpy.ndarray'),
    (_Dtype, 'numpy.dtype'),
    *((_Scalar, f'numpy.{core}.multiarray.scalar') for core in ('core', '_core')),
    *((_Array, f'numpy.{core}.multiarray._reconstruct') for core in ('core', '_core')),
]


def to_plain(content: Any, done: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """Replaces the placeholders in what `torch.load` with `weights_only=True` and `STAND_INS` returns by their data.

    Dicts and lists are changed in place. `done` has the objects that were converted, by id. Raises `ValueError` for
    functions, classes and anything else that is not data.
    """
    done = {} if done is None else done
    if id(content) in done:
        return done[id(content)][1]
    done[id(content)] = (content, content)
    if isinstance(content, _StandIn):
        done[id(content)] = (content, content.made())
    elif isinstance(content, dict):
        if isinstance(content, OrderedDict):
            if set(vars(content)) - {'_metadata'}:  # that of `nn.Module.state_dict`; others could hide methods
                raise ValueError(f'a dict with the attributes {sorted(vars(content))} is not data')
            to_plain(vars(content), done)
        for key in content:
            to_plain(key, done)
            content[key] = to_plain(content[key], done)
    elif isinstance(content, list):
        content[:] = [to_plain(value, done) for value in content]
    elif type(content) in (tuple, set):
        done[id(content)] = (content, type(content)([to_plain(value, done) for value in content]))
    elif callable(content):
        raise ValueError(f'{content} is not data')
    return done[id(content)][1]
