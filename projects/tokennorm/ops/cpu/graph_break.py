"""Calls of the CPU kernel from functions that `torch.compile` traces: it leaves its graph for them.

Importing this file imports torch's compiler.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tokennorm.ops.cpu import kernel


def pays(x: Tensor) -> bool:
    """Returns whether the kernel may take tokens like these; otherwise the eager form is compiled."""
    return x.device.type == 'cpu' and x.dtype in kernel.DTYPES and _has_library_and_no_exporter()


@torch.compiler.assume_constant_result  # runs while torch traces, instead of being traced
def _has_library_and_no_exporter() -> bool:
    return not torch.compiler.is_exporting() and kernel.library() is not None


@torch.compiler.disable
def call(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Returns function(...), which is not compiled."""
    return function(*args)
