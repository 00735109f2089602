"""Where DTN's Triton kernels run: on GPUs on which they agree with the eager form.

The comparison is one small forward and backward pass per device and dtype, on an odd grid, with windows of 2 x 2 tokens
and padding, before the first use. It runs in a child process with a time limit, so that an illegal access of memory or
an endless loop ends the child only. That it passed is noted in the cache directory, for the device's name, the versions
of torch and Triton and the kernels' sources.
"""

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from tokennorm.files import cache_directory, write_atomically
from tokennorm.ops.dtn_eager import eager_dtn

NAMES = ('y', 'x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')
# Of the result and each gradient, relative to the largest entry.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
MAX_CHANNELS = 4096  # a token's statistics are taken in one tile
SHAPE, HEADS = (2, 37, 21, 96), 3
SOURCES = sorted(path for name in ('dtn_triton*.py', 'dtn_kernels/*.py') for path in Path(__file__).parent.glob(name))
SECONDS = 300  # for the child, which compiles the kernels
CHILD = """
import sys, torch
from tokennorm.ops import dtn_triton_check
sys.exit(dtn_triton_check.wrong_results(torch.device(sys.argv[1]), getattr(torch, sys.argv[2])))
"""


def can_use(x: Tensor) -> bool:
    """Returns whether `dtn_triton` takes these tokens. Triton, which takes a second to import, is not imported before.

    True for float32, float16 and bfloat16 tokens of at most 4096 channels on an NVIDIA GPU of compute capability 8.0
    (Ampere) or later, where Triton is installed and its kernels passed the comparison with the eager form. The
    environment variable TOKENNORM_TRITON=0 makes it False.
    """
    return _suits(x) and kernels_work(x.device, x.dtype)


def _suits(x: Tensor) -> bool:
    return (
        x.is_cuda
        and os.environ.get('TOKENNORM_TRITON', '1') != '0'
        and torch.version.hip is None
        and x.dtype in TOLERANCE
        and x.shape[-1] <= MAX_CHANNELS
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
        and find_spec('triton') is not None
    )


@functools.cache
def kernels_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether the kernels agree with the eager form; warns once if they do not."""
    import triton

    sources = [path.read_text() for path in SOURCES]
    name = torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type
    key = repr((sources, name, torch.__version__, triton.__version__, str(dtype)))
    passed = cache_directory() / f'dtn_triton_{hashlib.sha256(key.encode()).hexdigest()[:16]}.passed'
    if passed.exists():
        return True
    print(
        "TokenNorm compares DTN's Triton kernels with the eager form, once: its authors had no GPU to run them on",
        file=sys.stderr,
        flush=True,
    )
    command = [sys.executable, '-c', CHILD, str(device), str(dtype).removeprefix('torch.')]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        problem = f'it took more than {SECONDS} seconds'
    else:
        if done.returncode == 0:
            with contextlib.suppress(OSError):  # the next process compares again
                write_atomically(passed, b'')
            return True
        problem = ': '.join([f'exit status {done.returncode}', *done.stderr.splitlines()[-1:]])
    warnings.warn(
        f'DTN does not use its Triton kernels on {device} in {dtype}, because their comparison with the eager form '
        f'failed: {problem}. The slower eager form runs instead. TOKENNORM_TRITON=0 skips the comparison',
        stacklevel=2,
    )
    return False


def wrong_results(device: torch.device, dtype: torch.dtype) -> str | None:
    """Compares the kernels with the eager form; returns the largest relative errors above `TOLERANCE`, if any."""
    from tokennorm.ops.dtn_triton import dtn_triton

    generator = torch.Generator().manual_seed(0)
    batch, height, width, channels = SHAPE
    x, grad_y = (torch.randn(SHAPE, generator=generator).to(device, dtype) for _ in range(2))
    sizes = [(channels,), (channels,), (HEADS,), (HEADS,), (HEADS, 3)]
    rest = [torch.randn(size, generator=generator) for size in sizes]
    rest[-1][:, 0] = -0.5
    valid = torch.tensor([[height - image, width - 2 * image] for image in range(batch)], device=device)

    def run(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        inputs = [t.to(device, dtype if t is x else torch.float32).requires_grad_() for t in (x, *rest)]
        y = function(*inputs, pool=2, valid=valid)
        return [y.detach(), *torch.autograd.grad(y, inputs, grad_y.to(y.dtype))]

    pairs = zip(NAMES, run(dtn_triton, dtype), run(eager_dtn, torch.float32), strict=True)
    errors = {name: ((a.float() - e).abs().max() / e.abs().max()).item() for name, a, e in pairs}
    wrong = {name: f'{error:.1e}' for name, error in errors.items() if not error <= TOLERANCE[dtype]}
    return f'relative errors {wrong}, at most {TOLERANCE[dtype]:g} was expected' if wrong else None
