"""Tensors that a compiled kernel may read, and the precision that normalizers compute in."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def is_plain(*tensors: Tensor | None) -> bool:
    """Returns whether a compiled kernel may compute with the memory of these tensors: dense, and on one device.

    False while torch traces, compiles or exports, inside transforms (`torch.func`) and forward-mode AD, under dispatch
    modes (fake tensors, FLOP counters) and for subclasses of `Tensor`.
    """
    if torch.compiler.is_compiling():  # which cannot trace the rest
        return False
    for t in tensors:
        if t is not None:
            if type(t) not in (Tensor, torch.nn.Parameter) or t.is_neg() or t._is_zerotensor():
                return False
            if t.device != tensors[0].device or t.layout is not torch.strided:
                return False
    return not (
        torch.jit.is_tracing()
        or torch.onnx.is_in_onnx_export()
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
    )


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Context that switches autocast off on the device of x. The meta device has no autocast."""
    # `torch.amp.is_autocast_available` would break the graph of torch.compile.
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def in_float32(function: Callable[..., Tensor], x: Tensor, *args: Any) -> Tensor:
    """function(x, ...) with x in float32 (float64 stays) and autocast off, in the dtype that `F.layer_norm` returns.

    That is the dtype of x, and float32 under CUDA's autocast.
    """
    to_float32 = x.is_cuda and torch.is_autocast_enabled('cuda') and x.dtype != torch.float64
    out_dtype = torch.float32 if to_float32 else x.dtype
    with without_autocast(x):
        return function(x.to(torch.promote_types(x.dtype, torch.float32)), *args).to(out_dtype)
