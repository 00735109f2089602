"""Comparison of DTN's Triton kernels with the eager form, before they are used on a device for the first time.

One small forward and backward pass per device and dtype, on an odd grid, with windows of 2 x 2 tokens and padding. A
pass is remembered in the cache directory under the device's name, the versions of torch and Triton and the kernels'
sources; a failure is not, so that the next process tries again.
"""

import functools
import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tokennorm.ops.cache import cache_directory
from tokennorm.ops.dtn_eager import eager_dtn

NAMES = ('y', 'x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')
# Of the result and each gradient, relative to the largest entry.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
SHAPE, HEADS = (2, 37, 21, 96), 3
SOURCES = sorted(path for name in ('dtn_triton*.py', 'dtn_kernels/*.py') for path in Path(__file__).parent.glob(name))


@functools.cache
def kernels_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether the kernels agree with the eager form; warns once if they do not."""
    marker = _marker(device, dtype)
    if marker is not None and marker.exists():
        return True
    try:
        errors = compare(device, dtype)
        wrong = {name: f'{error:.1e}' for name, error in errors.items() if not error <= TOLERANCE[dtype]}
        problem = f'relative errors {wrong}, at most {TOLERANCE[dtype]:g} was expected' if wrong else None
    except Exception as error:  # whatever Triton, its compiler or the driver raises
        problem = f'{type(error).__name__}: {error}'
    if problem is not None:
        warnings.warn(
            f'DTN does not use its Triton kernels on {device} in {dtype}, because they differ from the eager form: '
            f'{problem}. The slower eager form runs instead. TOKENNORM_TRITON=0 skips this check.',
            stacklevel=2,
        )
        return False
    if marker is not None:
        try:
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError:
            pass  # the next process checks again
    return True


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


def _marker(device: torch.device, dtype: torch.dtype) -> Path | None:
    """The file that exists once the comparison has passed; None if it cannot be placed."""
    try:
        import triton

        sources = [path.read_text() for path in SOURCES]
        name = torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type
        key = (sources, name, torch.__version__, triton.__version__, str(dtype))
        return cache_directory() / f'dtn_triton_{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.passed'
    except (ImportError, OSError, RuntimeError):
        return None
