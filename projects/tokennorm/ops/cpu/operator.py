"""The CPU kernel of DTN as an operator of torch, which `torch.compile` calls as it is.

The compiler cannot look at tensors while it traces. So the operator asks at each call whether the kernel takes the
tokens, and runs the eager form where it does not. (Leaving the graph for the kernel would cost 0.5 ms per call.)
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from tokennorm.ops.cpu import kernel
from tokennorm.ops.dtn_eager import eager_dtn

ARGUMENTS = (
    'Tensor x, Tensor weight, Tensor bias, Tensor? mean_logit, Tensor var_logit, Tensor position, float eps, '
    'SymInt pool, Tensor? valid'
)


def can_trace(x: Tensor) -> bool:
    """Returns whether the operator takes tokens like these, which `torch.compile` traces."""
    return x.device.type == 'cpu' and x.dtype in kernel.DTYPES and _fits_the_graph()


@torch.compiler.assume_constant_result  # runs while torch traces, which would take it for true in all graphs
def is_exporting() -> bool:
    """Returns whether torch traces for `torch.export`."""
    return torch.compiler.is_exporting()


@torch.compiler.assume_constant_result
def _fits_the_graph() -> bool:
    """Returns whether there is a kernel, and torch does not transform, which needs operations of torch."""
    return torch._C._functorch.peek_interpreter_stack() is None and kernel.library() is not None


@torch.library.custom_op('tokennorm::dtn', mutates_args=(), schema=f'({ARGUMENTS}) -> (Tensor, Tensor)')
def dtn_forward(x, weight, bias, mean_logit, var_logit, position, eps, pool, valid):
    """The result of `tokennorm.ops.dtn.dtn`, and what the backward pass needs of it."""
    parameters = (weight, bias, mean_logit, var_logit, position)
    pool = max(1, min(pool, max(x.shape[1:3])))
    if kernel.takes(x, position, pool):
        return kernel.forward(x, parameters, eps, pool, valid)
    y = eager_dtn(x, *parameters, eps=eps, pool=pool, valid=valid)
    return y.contiguous(), x.new_zeros(kernel.statistics_size(x), dtype=torch.float32)


@torch.library.custom_op(
    'tokennorm::dtn_backward', mutates_args=(), schema=f'(Tensor grad_y, Tensor statistics, {ARGUMENTS}) -> Tensor[]'
)
def dtn_backward(grad_y, statistics, x, weight, bias, mean_logit, var_logit, position, eps, pool, valid):
    """The gradients of x and of the parameters, without that of a `mean_logit` of None."""
    parameters = (weight, bias, mean_logit, var_logit, position)
    pool = max(1, min(pool, max(x.shape[1:3])))
    if kernel.takes(x, position, pool):
        gradients = kernel.backward(grad_y, x, parameters, eps, pool, valid, statistics)
    else:  # inside an operator torch records no graph, on a thread of its own it does
        with ThreadPoolExecutor(1) as thread:
            gradients = thread.submit(kernel.eager_gradients, grad_y, x, parameters, eps, pool, valid).result()
    return [g.contiguous() for g in gradients if g is not None]


@dtn_forward.register_fake
def _(x, *rest):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, x.new_empty(kernel.statistics_size(x), dtype=torch.float32)


@dtn_backward.register_fake
def _(grad_y, statistics, x, weight, bias, mean_logit, var_logit, position, *rest):
    tensors = [t for t in (x, weight, bias, mean_logit, var_logit, position) if t is not None]
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]


def _save(ctx, inputs, output):
    *tensors, ctx.eps, ctx.pool, valid = inputs
    ctx.save_for_backward(output[1], *tensors, valid)


def _gradients(ctx, grad_y, _):
    *tensors, valid = ctx.saved_tensors
    gradients = iter(dtn_backward(grad_y, *tensors, ctx.eps, ctx.pool, valid))
    return *(None if t is None else next(gradients) for t in tensors[1:]), None, None, None


dtn_forward.register_autograd(_gradients, setup_context=_save)
