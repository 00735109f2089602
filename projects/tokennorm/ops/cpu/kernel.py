"""DTN's CPU kernel: the shared library, the call of its functions, and their autograd.

The library comes from the installed wheel, for the largest instruction set that torch finds in the processor
(`ATEN_CPU_CAPABILITY=avx2` or `default` chooses a smaller one), or is compiled at first use (`build`). If there is
none, one warning says why and the eager form in `tokennorm.ops.dtn_eager` runs. `TOKENNORM_CPU_KERNEL=0` switches it
off.
"""

import ctypes
import functools
import os
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tokennorm.ops.cpu import build
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.tensors import without_autocast

DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of tokens; the library computes in float32
NUMBERS = ('batch', 'height', 'width', 'channels', 'heads', 'pool', 'threads')
PARAMETERS = ('weight', 'bias', 'mean_logit', 'var_logit', 'position')
GRADIENTS = tuple(f'grad_{name}' for name in PARAMETERS)
RESULTS = ('y', 'grad_y', 'grad_x')


# ---- Which tensors it takes


def takes(x: Tensor, position: Tensor, pool: int) -> bool:
    """Returns whether the kernel takes these tokens, whose memory it may read (`has_memory`).

    True for float32, bfloat16 and float16 tokens on a CPU with positional weights that float32 can hold before they
    are normalized, and that do not span most of a grid of more than 128 x 128 windows of side `pool`.
    """
    if x.device.type != 'cpu' or x.dtype not in DTYPES or x.numel() == 0:
        return False
    kernel = library()
    if kernel is None:
        return False
    rows, columns = (-(-size // pool) for size in x.shape[1:3])
    position = _float32(position)
    return bool(kernel.dtn_takes(position.data_ptr(), position.shape[0], rows, columns))


def has_memory(*tensors: Tensor | None) -> bool:
    """Returns whether foreign code may read the memory of these tensors.

    False for subclasses of `Tensor`, inside transforms (`torch.func`) and forward-mode AD, under dispatch modes (fake
    tensors, FLOP counters) and while torch compiles, exports or traces.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    try:
        for t in tensors:
            if t is None:
                continue
            if type(t) not in (Tensor, torch.nn.Parameter) or t.is_neg() or t.layout is not torch.strided:
                return False
            if forward_ad.unpack_dual(t).tangent is not None or (t.data_ptr() == 0 and t.numel() > 0):
                return False
    except RuntimeError:  # tensors of a batched gradient have no memory
        return False
    return True


# ---- Autograd


class CpuDTN(torch.autograd.Function):
    """Algorithm 1 of the paper; arguments and result as in `tokennorm.ops.dtn.dtn`. Ask `takes` and `has_memory` first.

    An operator of `torch.library` would cost 35 us more per forward pass and 60 us per step.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, mean_logit, var_logit, position, eps, pool, valid):
        parameters = (weight, bias, mean_logit, var_logit, position)
        y, statistics = forward(x, parameters, eps, pool, valid)
        ctx.save_for_backward(x, *parameters, valid, statistics)
        ctx.eps, ctx.pool = eps, pool
        return y

    @staticmethod
    def backward(ctx, grad_y):
        """The gradients of the arguments of `forward`, None for those that have none. torch calls it."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                'DTN in float32 and below is differentiable once on a CPU: for create_graph=True use float64 tokens, '
                'tokennorm.ops.dtn_eager.eager_dtn or TOKENNORM_CPU_KERNEL=0'
            )
        # Unpack once: under activation checkpointing a second access of saved_tensors raises.
        x, *parameters, valid, statistics = ctx.saved_tensors
        if has_memory(grad_y):
            return *backward(grad_y, x, parameters, ctx.eps, ctx.pool, valid, statistics), None, None, None
        return *eager_gradients(grad_y, x, parameters, ctx.eps, ctx.pool, valid), None, None, None


def eager_gradients(
    grad_y: Tensor, x: Tensor, parameters: Sequence[Tensor | None], eps: float, pool: int, valid: Tensor | None
) -> list[Tensor | None]:
    """The gradients by the eager form, where the kernel cannot compute them."""
    with torch.enable_grad(), without_autocast(x):
        inputs = [None if t is None else t.detach().requires_grad_() for t in (x, *parameters)]
        y = eager_dtn(*inputs, eps=eps, pool=pool, valid=valid)
        gradients = iter(torch.autograd.grad(y, [t for t in inputs if t is not None], grad_y))
    return [None if t is None else next(gradients) for t in inputs]


# ---- The calls


def statistics_size(x: Tensor) -> int:
    """Numbers that the forward pass keeps for the backward pass besides its arguments."""
    batch, height, width, channels = x.shape
    return 2 * batch * height * width + batch * channels


def forward(
    x: Tensor, parameters: Sequence[Tensor | None], eps: float, pool: int, valid: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The result, and what `backward` needs of it."""
    y = x.new_empty(x.shape, dtype=torch.float32)
    statistics = y.new_empty(statistics_size(x))
    _call('dtn_forward', x, parameters, eps, pool, valid, y=y, statistics=statistics)
    return y.to(x.dtype), statistics


def backward(
    grad_y: Tensor,
    x: Tensor,
    parameters: Sequence[Tensor | None],
    eps: float,
    pool: int,
    valid: Tensor | None,
    statistics: Tensor,
) -> list[Tensor | None]:
    """The gradients of x and of each parameter that is not None, in their dtypes."""
    gradients = [None if t is None else statistics.new_empty(t.shape) for t in parameters]
    grad_x = statistics.new_empty(x.shape)
    others = dict(zip(GRADIENTS, gradients, strict=True), grad_y=grad_y, grad_x=grad_x, statistics=statistics)
    _call('dtn_backward', x, parameters, eps, pool, valid, **others)
    pairs = zip(parameters, gradients, strict=True)
    return [grad_x.to(x.dtype), *(g if g is None or t.dtype is g.dtype else g.to(t.dtype) for t, g in pairs)]


def _call(
    function: str,
    x: Tensor,
    parameters: Sequence[Tensor | None],
    eps: float,
    pool: int,
    valid: Tensor | None,
    **others: Tensor | None,
) -> None:
    """Calls a function of the library; `others` are the further tensors that it reads or writes."""
    tensors = {'x': x, **dict(zip(PARAMETERS, parameters, strict=True)), **others}
    tensors = {name: _float32(t) for name, t in tensors.items() if t is not None}
    if valid is not None:
        tensors['valid'] = valid.long().contiguous()
    pointers = {name: t.data_ptr() for name, t in tensors.items()}
    call = Call(*x.shape, parameters[-1].shape[0], pool, torch.get_num_threads(), eps, **pointers)
    if getattr(library(), function)(call):
        raise MemoryError(f'DTN: not enough memory for tokens of shape {tuple(x.shape)}')


def _float32(t: Tensor) -> Tensor:
    """The tensor as contiguous float32. Asking costs less than two conversions that return it as it is."""
    return t if t.dtype is torch.float32 and t.is_contiguous() else t.float().contiguous()


# ---- The library


class Call(ctypes.Structure):
    """`Call` of plan.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in NUMBERS),
        ('eps', ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ('x', *PARAMETERS, 'valid', 'statistics', *RESULTS, *GRADIENTS)),
    )


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernel, compiled if neither the installation nor the cache has it; None, with one warning, if that fails."""
    if os.environ.get('TOKENNORM_CPU_KERNEL', '1') == '0':
        return None
    try:
        return load(library_path())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        warnings.warn(
            f'DTN runs in its slower eager form, because its CPU kernel could not be compiled or loaded: {error}. '
            'TOKENNORM_CPU_KERNEL=0 silences this',
            stacklevel=3,
        )
        return None


def library_path() -> Path:
    """Path of the library for this processor: that of the installed wheel, else of the cache, compiled if needed."""
    names = list(build.instruction_sets())
    largest = {'AVX512': 'x86-64-v4', 'AVX2': 'x86-64-v3'}.get(torch.backends.cpu.get_cpu_capability(), names[-1])
    names = names[names.index(largest) :]
    built = [path for path in map(build.built_library, names) if path.is_file()]
    return built[0] if built else build.cached_library(names[0])


def load(path: Path) -> ctypes.CDLL:
    """Loads the library; OSError if it is damaged or expects other arguments."""
    kernel = ctypes.CDLL(str(path))
    try:
        kernel.dtn_call_size.restype = ctypes.c_int64
        size = kernel.dtn_call_size()
    except AttributeError as error:
        raise OSError(f'{path} is not a kernel of DTN; remove it') from error
    if size != ctypes.sizeof(Call):
        raise OSError(f'{path} takes {size} bytes of arguments, expected {ctypes.sizeof(Call)}; remove it')
    kernel.dtn_forward.argtypes = kernel.dtn_backward.argtypes = [ctypes.POINTER(Call)]
    kernel.dtn_takes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
    return kernel
