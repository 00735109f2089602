"""Comparison of DTN's Triton kernels with the eager form, before they are used on a device for the first time.

One small forward and backward pass per device and dtype, on an odd grid, with windows of 2 x 2 tokens and padding. It
runs in a child process with a time limit, so that an illegal access of memory or an endless loop ends the child only.
The verdict is noted in the cache directory under the device's name, the versions of torch and Triton and the kernels'
sources. An exception in the child, such as a lack of memory, is not noted: the next process compares again.
"""

import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tokennorm.files import cache_directory
from tokennorm.ops.dtn_eager import eager_dtn

NAMES = ('y', 'x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')
# Of the result and each gradient, relative to the largest entry.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
SHAPE, HEADS = (2, 37, 21, 96), 3
SOURCES = sorted(path for name in ('dtn_triton*.py', 'dtn_kernels/*.py') for path in Path(__file__).parent.glob(name))
PASSED = 'passed'
SECONDS = 300  # for the child, which compiles the kernels
CHILD = """
import json, sys, torch
from tokennorm.ops import dtn_triton_check
print(json.dumps(dtn_triton_check.compare(torch.device(sys.argv[1]), getattr(torch, sys.argv[2]))))
"""


@functools.cache
def kernels_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether the kernels agree with the eager form; warns once if they do not."""
    note = _note(device, dtype)
    verdict = note.read_text() if note is not None and note.exists() else ''
    if not verdict:
        try:
            verdict = _verdict_of_child(device, dtype)
            if note is not None:
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(verdict)
        except RuntimeError as error:
            verdict, note = str(error), None
        except OSError:
            note = None  # the next process compares again
    if verdict == PASSED:
        return True
    warnings.warn(
        f'DTN does not use its Triton kernels on {device} in {dtype}, because their comparison with the eager form '
        f'failed: {verdict}. The slower eager form runs instead. TOKENNORM_TRITON=0 skips the comparison'
        + (f'; to repeat it, remove {note}' if note is not None else ''),
        stacklevel=2,
    )
    return False


def _verdict_of_child(device: torch.device, dtype: torch.dtype) -> str:
    """`PASSED`, or what is wrong with the kernels. An exception in the child becomes a `RuntimeError`."""
    print("TokenNorm compares DTN's Triton kernels with the eager form, once", file=sys.stderr, flush=True)
    command = [sys.executable, '-c', CHILD, str(device), str(dtype).removeprefix('torch.')]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f'it took more than {SECONDS} seconds'
    if done.returncode < 0:
        return f'it was killed by {signal.Signals(-done.returncode).name}'
    if done.returncode > 0:
        raise RuntimeError((done.stderr.splitlines() or [f'exit status {done.returncode}'])[-1])
    errors = json.loads(done.stdout.splitlines()[-1])
    wrong = {name: f'{error:.1e}' for name, error in errors.items() if not error <= TOLERANCE[dtype]}
    return f'relative errors {wrong}, at most {TOLERANCE[dtype]:g} was expected' if wrong else PASSED


def compare(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Largest errors of the kernels against the eager form, relative to the largest entry, by name."""
    from tokennorm.ops.dtn_triton import dtn_triton

    generator = torch.Generator().manual_seed(0)
    (batch, height, width, channels), heads = SHAPE, HEADS
    sizes = [(channels,), (channels,), (heads,), (heads,), (heads, 3)]
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        x, grad_y = (torch.randn(SHAPE, generator=generator).to(device, dtype) for _ in range(2))
        rest = [torch.randn(size, generator=generator) for size in sizes]
        rest[-1][:, 0] = -0.5
        valid = torch.tensor([[height - image, width - 2 * image] for image in range(batch)], device=device)

        def run(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
            inputs = [t.to(device, dtype if t is x else torch.float32).requires_grad_() for t in (x, *rest)]
            y = function(*inputs, pool=2, valid=valid)
            return [y.detach(), *torch.autograd.grad(y, inputs, grad_y.to(y.dtype))]

        pairs = zip(NAMES, run(dtn_triton, dtype), run(eager_dtn, torch.float32), strict=True)
        return {name: ((a.float() - e).abs().max() / e.abs().max()).item() for name, a, e in pairs}


def _note(device: torch.device, dtype: torch.dtype) -> Path | None:
    """The file that holds the verdict; None if it cannot be placed."""
    try:
        import triton

        sources = [path.read_text() for path in SOURCES]
        name = torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type
        key = (sources, name, torch.__version__, triton.__version__, str(dtype))
        return cache_directory() / f'dtn_triton_{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.verdict'
    except (ImportError, OSError, RuntimeError):
        return None
