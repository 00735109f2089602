"""Reads checkpoints without running any code of the file.

torch's `weights_only=True` reads tensors, numbers, strings and their containers. mmengine's runner also saves numpy's
numbers and arrays and its own histories of scalars. These are read by the functions and classes below, which accept
numbers only: numpy's own would follow an address in an array of objects. Objects of all other classes, and results of
functions, are read as empty dicts.
"""

import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer


class _Dtype:
    """A numpy dtype of numbers, in `made`."""

    def __init__(self, code: str, *_: Any) -> None:
        if not re.fullmatch(r'[biuf]\d+', code):
            raise ValueError(f'numpy data of type {code} is not a number')
        self.made = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        self.made = self.made.newbyteorder(state[1])


def _scalar(dtype: _Dtype, content: bytes) -> np.generic:
    return np.frombuffer(content, dtype.made)[0]


class _Array(np.ndarray):
    """An array of numbers, which is saved as one of numpy's own class."""

    def __new__(cls, *_: Any) -> '_Array':
        return super().__new__(cls, 0)

    def __setstate__(self, state: Any) -> None:
        if self.size:  # a tensor may be a view of the memory that numpy would free
            raise ValueError('a numpy array has content already')
        _, shape, dtype, by_columns, content = state
        super().__setstate__((1, shape, dtype.made, by_columns, content))

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


class _History(HistoryBuffer):
    """Becomes mmengine's own, with its statistics methods in place of the file's."""

    def __setstate__(self, state: Any) -> None:
        self.__class__ = HistoryBuffer
        HistoryBuffer.__init__(self, state['_log_history'], state['_count_history'], state['max_length'])


class _Other:
    """Any other class or function."""

    def __new__(cls, *args: Any) -> OrderedDict:
        return OrderedDict()


_SAFE: list[Any] = [
    (bytes, 'builtins.bytes'),
    (_History, 'mmengine.logging.history_buffer.HistoryBuffer'),
    (_Array, 'numpy.ndarray'),
    (_Dtype, 'numpy.dtype'),
    *((_scalar, f'numpy.{core}.multiarray.scalar') for core in ('core', '_core')),
    *((_Array, f'numpy.{core}.multiarray._reconstruct') for core in ('core', '_core')),
]


def read_data(path: Path, map_location: Any) -> Any:
    """Returns what `torch.save` wrote, with dicts in place of objects of other classes."""
    with torch.serialization.safe_globals(_SAFE):
        unknown: list[str] = []
        with suppress(ValueError):  # a file in torch's older format, without zip
            unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        with torch.serialization.safe_globals([(_Other, name) for name in unknown]):
            return torch.load(path, map_location=map_location, weights_only=True)
