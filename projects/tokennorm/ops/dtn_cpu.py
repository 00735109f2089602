"""Dynamic Token Normalization on a CPU: compiles `dtn_cpu.cpp` and its headers at first use and calls it from autograd.

The system's C++ compiler (`CXX`, else c++, g++ or clang++) compiles the library into a cache directory:
`TOKENNORM_CACHE`, else `$XDG_CACHE_HOME/tokennorm`, else `~/.cache/tokennorm`. The file's name is a hash of the
sources, the compiler, its options and the processor. A folder or file that other users can write is not used, and a
file is loaded only if its hash is the noted one. If there is no usable file, one warning says why and the eager form
in `tokennorm.ops.dtn_eager` runs. `TOKENNORM_CPU_KERNEL=0` switches it off. To compile ahead of use:

    python -m tokennorm.ops.dtn_cpu
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from tokennorm.files import cache_directory
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.tensors import is_plain, without_autocast

SOURCE = Path(__file__).with_name('dtn_cpu.cpp')
HEADERS = sorted(SOURCE.parent.glob('dtn_cpu*.h'))
OPTIONS = ('-O3', '-std=c++17', '-fno-math-errno', '-fno-trapping-math', '-ffp-contract=fast', '-fPIC', '-shared')
OPTIONS += ('-pthread', '-w')
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of tokens; the library computes in float32
NUMBERS = ('batch', 'height', 'width', 'channels', 'heads', 'pool', 'threads')
PARAMETERS = ('weight', 'bias', 'mean_logit', 'var_logit', 'position')
GRADIENTS = tuple(f'grad_{name}' for name in PARAMETERS)
RESULTS = ('y', 'grad_y', 'grad_x')


class _Call(ctypes.Structure):
    """`Call` of dtn_cpu.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in NUMBERS),
        ('eps', ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ('x', *PARAMETERS, 'valid', 'statistics', *RESULTS, *GRADIENTS)),
    )


def can_use(x: Tensor, position: Tensor, pool: int) -> bool:
    """Returns whether the kernel takes these tokens.

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


class CpuDTN(torch.autograd.Function):
    """Algorithm 1 of the paper; arguments and result as in `tokennorm.ops.dtn.dtn`. Ask `can_use` first."""

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
        # Asked for once: activation checkpointing allows no more.
        x, *parameters, valid, statistics = ctx.saved_tensors
        if not is_plain(grad_y) or torch._C._functorch.is_legacy_batchedtensor(grad_y):
            return *eager_gradients(grad_y, x, parameters, ctx.eps, ctx.pool, valid), None, None, None
        return *backward(grad_y, x, parameters, ctx.eps, ctx.pool, valid, statistics), None, None, None


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
    _call(
        'dtn_backward',
        x,
        parameters,
        eps,
        pool,
        valid,
        grad_y=grad_y,
        grad_x=grad_x,
        statistics=statistics,
        **dict(zip(GRADIENTS, gradients, strict=True)),
    )
    gradients = [
        g if g is None or t.dtype is g.dtype else g.to(t.dtype) for t, g in zip(parameters, gradients, strict=True)
    ]
    return [grad_x.to(x.dtype), *gradients]


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
    call = _Call(*x.shape, parameters[-1].shape[0], pool, torch.get_num_threads(), eps, **pointers)
    if getattr(library(), function)(call):
        raise MemoryError(f'DTN: not enough memory for tokens of shape {tuple(x.shape)}')


def _float32(t: Tensor) -> Tensor:
    """The tensor as contiguous float32. Asking costs less than two conversions that return it as it is."""
    return t if t.dtype is torch.float32 and t.is_contiguous() else t.float().contiguous()


def eager_gradients(
    grad_y: Tensor, x: Tensor, parameters: Sequence[Tensor | None], eps: float, pool: int, valid: Tensor | None
) -> list[Tensor | None]:
    """The gradients by the eager form, where the kernel cannot compute them."""
    with torch.enable_grad(), without_autocast(x):
        inputs = [None if t is None else t.detach().requires_grad_() for t in (x, *parameters)]
        y = eager_dtn(*inputs, eps=eps, pool=pool, valid=valid)
        gradients = iter(torch.autograd.grad(y, [t for t in inputs if t is not None], grad_y))
    return [None if t is None else next(gradients) for t in inputs]


# ---- The library


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, compiled if it is not in the cache; None, with one warning, if that fails."""
    if os.environ.get('TOKENNORM_CPU_KERNEL', '1') == '0':
        return None
    try:
        path = build()
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        _warn(f'could not be compiled: {error}. Install a C++ compiler (g++ or clang++)')
        return None
    try:
        return _load(path)
    except (OSError, AttributeError) as error:
        _warn(f'could not be loaded: {error}. Remove {path.parent}')
        return None


def _warn(problem: str) -> None:
    warnings.warn(
        f'DTN runs in its slower eager form, because its CPU kernel {problem}, or set TOKENNORM_CPU_KERNEL=0 to '
        'silence this.',
        stacklevel=3,
    )


def build() -> Path:
    """Compiles the kernel unless it is in the cache, and returns its path."""
    compiler = _compiler()
    version = subprocess.run([*compiler, '--version'], capture_output=True, timeout=60).stdout
    sources = [path.read_text() for path in (SOURCE, *HEADERS)]
    key = (sources, compiler, version, OPTIONS, _processor())
    target = cache_directory() / 'kernels' / f'dtn_cpu_{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.so'
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    _refuse_others(target.parent.parent, writers=0o002)  # a user's own group may write where the umask is 002
    _refuse_others(target.parent)
    if not _is_whole(target):
        with _one_at_a_time(target.parent):
            if not _is_whole(target):
                _compile(compiler, target)
    _refuse_others(target)
    return target


def _refuse_others(path: Path, writers: int = 0o022) -> None:
    """Raises `PermissionError` for a path of another user, or one in which others can place code."""
    status = path.stat()
    if hasattr(os, 'getuid') and (status.st_uid != os.getuid() or status.st_mode & writers):
        raise PermissionError(f'{path} belongs to another user, or others can write to it; remove it or set its owner')


def _is_whole(target: Path) -> bool:
    """Returns whether the library has the hash that was noted when it was written. Loading half a file kills Python."""
    try:
        return target.with_suffix('.sha256').read_text() == hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError:
        return False


def _compiler() -> list[str]:
    """The command of `CXX`, or the first C++ compiler on PATH."""
    named = shlex.split(os.environ.get('CXX', ''))
    found = next(filter(None, map(shutil.which, named[:1] or ('c++', 'g++', 'clang++'))), None)
    if found is None:
        raise RuntimeError(f'no C++ compiler was found ({named[0] if named else "c++, g++ or clang++ on PATH"})')
    return [found, *named[1:]]


def _processor() -> str:
    """The architecture and the processor's features, on which `-march=native` depends."""
    with contextlib.suppress(OSError):
        for line in Path('/proc/cpuinfo').read_text().splitlines():
            if line.startswith(('flags', 'Features')):
                return f'{platform.machine()} {line}'
    return f'{platform.machine()} {platform.processor()}'


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Lets other processes that compile wait, where the file system has locks. A link is refused."""
    lock = os.open(folder / 'lock', os.O_RDWR | os.O_CREAT | getattr(os, 'O_NOFOLLOW', 0), 0o600)
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _compile(compiler: list[str], target: Path) -> None:
    """Compiles in a temporary folder, notes the hash, and renames, so that no process sees half a file."""
    print('TokenNorm compiles the CPU kernel of DTN, once: about 20 seconds', file=sys.stderr, flush=True)
    for left in target.parent.glob('tmp*'):  # of processes that were killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        output = Path(directory, target.name)
        for native in ('-march=native', '-mcpu=native', None):
            command = [*compiler, *OPTIONS, *filter(None, [native]), str(SOURCE), '-o', str(output)]
            done = subprocess.run(command, capture_output=True, text=True, errors='replace', timeout=600)
            if done.returncode == 0:
                output.chmod(0o700)
                noted = output.with_suffix('.sha256')
                noted.write_text(hashlib.sha256(output.read_bytes()).hexdigest())
                for path in (output, noted):
                    with path.open('rb') as file:
                        os.fsync(file.fileno())
                    path.replace(target.with_suffix(path.suffix))
                return
    errors = [line for line in done.stderr.splitlines() if 'error' in line] or ['no message']
    raise RuntimeError(f'{compiler[0]} failed: {errors[0][:300]}')


def _load(path: Path) -> ctypes.CDLL:
    kernel = ctypes.CDLL(str(path))
    kernel.dtn_forward.argtypes = kernel.dtn_backward.argtypes = [ctypes.POINTER(_Call)]
    kernel.dtn_takes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
    return kernel


if __name__ == '__main__':
    try:
        print(f'DTN CPU kernel: {build()}')
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        sys.exit(f'DTN CPU kernel: not compiled, the eager form will run: {error}')
