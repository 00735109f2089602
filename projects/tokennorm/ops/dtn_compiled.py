"""The CPU kernel of DTN as an operator of torch, which `torch.compile` calls as it is.

The compiler cannot look at tensors while it traces. So the operator asks at each call whether the kernel takes the
tokens, and runs the eager form where it does not.
"""

import torch
from torch import Tensor

from tokennorm.ops import dtn_cpu
from tokennorm.ops.dtn_eager import eager_dtn

ARGUMENTS = (
    'Tensor x, Tensor weight, Tensor bias, Tensor? mean_logit, Tensor var_logit, Tensor position, float eps, '
    'SymInt pool, Tensor? valid'
)


def can_use(x: Tensor, *others: Tensor | None) -> bool:
    """Returns whether the operator takes these tokens, parameters and sizes, which `torch.compile` traces."""
    on_cpu = all(t is None or t.device.type == 'cpu' for t in (x, *others))
    return on_cpu and x.dtype in dtn_cpu.DTYPES and _fits_the_graph()


@torch.compiler.assume_constant_result  # runs while torch traces, instead of being traced
def _fits_the_graph() -> bool:
    """Returns whether there is a kernel, and torch neither exports nor transforms, which need operations of torch."""
    is_plain = not torch.compiler.is_exporting() and torch._C._functorch.peek_interpreter_stack() is None
    return is_plain and dtn_cpu.library() is not None


@torch.library.custom_op('tokennorm::dtn', mutates_args=(), schema=f'({ARGUMENTS}) -> (Tensor, Tensor)')
def dtn_forward(x, weight, bias, mean_logit, var_logit, position, eps, pool, valid):
    """The result of `tokennorm.ops.dtn.dtn`, and what the backward pass needs of it."""
    parameters = (weight, bias, mean_logit, var_logit, position)
    pool = max(1, min(pool, max(x.shape[1:3])))
    if dtn_cpu.can_use(x, position, pool):
        return dtn_cpu.forward(x, parameters, eps, pool, valid)
    y = eager_dtn(x, *parameters, eps=eps, pool=pool, valid=valid)
    return y.contiguous(), x.new_zeros(dtn_cpu.statistics_size(x), dtype=torch.float32)


@torch.library.custom_op(
    'tokennorm::dtn_backward', mutates_args=(), schema=f'(Tensor grad_y, Tensor statistics, {ARGUMENTS}) -> Tensor[]'
)
def dtn_backward(grad_y, statistics, x, weight, bias, mean_logit, var_logit, position, eps, pool, valid):
    """The gradients of x and of the parameters, without that of a `mean_logit` of None."""
    parameters = (weight, bias, mean_logit, var_logit, position)
    pool = max(1, min(pool, max(x.shape[1:3])))
    if dtn_cpu.can_use(x, position, pool):
        gradients = dtn_cpu.backward(grad_y, x, parameters, eps, pool, valid, statistics)
    else:
        # torch 2.11 excludes the autograd keys inside an operator. An empty set re-enables them, and autocast's too.
        included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C.DispatchKeySet.from_raw_repr(0)
        with torch._C._ForceDispatchKeyGuard(included, excluded):
            gradients = dtn_cpu.eager_gradients(grad_y, x, parameters, eps, pool, valid)
    return [g.contiguous() for g in gradients if g is not None]


@dtn_forward.register_fake
def _(x, *rest):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, x.new_empty(dtn_cpu.statistics_size(x), dtype=torch.float32)


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
