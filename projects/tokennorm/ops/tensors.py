"""The precision that normalizers compute in, and whether they compute again."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Context that switches autocast off on the device of x. The meta device has no autocast."""
    # `torch.amp.is_autocast_available` would break the graph of torch.compile.
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def is_recomputed() -> bool:
    """Returns whether activation checkpointing calls a layer again, in a backward pass: its step is counted already."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def result_dtype(x: Tensor) -> torch.dtype:
    """The dtype that `F.layer_norm` returns: that of x, and float32 under CUDA's autocast, but for float64."""
    to_float32 = x.is_cuda and torch.is_autocast_enabled('cuda') and x.dtype != torch.float64
    return torch.float32 if to_float32 else x.dtype


def in_float32(function: Callable[..., Tensor], x: Tensor, *args: Any) -> Tensor:
    """function(x, ...) with x in float32 (float64 stays) and autocast off, in the dtype of `result_dtype`."""
    out_dtype = result_dtype(x)
    with without_autocast(x):
        return function(x.to(torch.promote_types(x.dtype, torch.float32)), *args).to(out_dtype)
