"""Detection of calls in which torch has to see every operation."""

import torch
from torch import Tensor


def is_plain(*tensors: Tensor | None) -> bool:
    """Returns whether a compiled kernel may compute with the memory of these tensors.

    False while torch traces, compiles or exports, inside transforms (`torch.func`), under dispatch modes (fake tensors,
    FLOP counters) and for subclasses of `Tensor`.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.onnx.is_in_onnx_export()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or any(type(t) not in (Tensor, torch.nn.Parameter) for t in tensors if t is not None)
    )
