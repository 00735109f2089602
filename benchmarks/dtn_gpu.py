"""DTN on a GPU, as one block to paste into an issue: errors against float64, times, and memory of a step.

    python benchmarks/dtn_gpu.py        # `pytest -m gpu` prints the same

The contenders are LayerNorm, DTN in place (what a GPU runs), its eager form, the same after torch.compile, and DTN in
Triton (experiments.gpu_kernels). An error is the largest one of a result or gradient, relative to its largest entry.
`--rehearse` runs small sizes on the CPU, without compiling.
"""

import argparse
import platform
from collections.abc import Callable

import torch
from measuring import milliseconds, peak_mebibytes
from torch import Tensor

from tokennorm.norms import LayerNorm
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_in_place import in_place_dtn
from tokennorm.version import __version__

NAMES = ('y', 'x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')
# batch, height, width, channels, heads, pool
SHAPES = [(1, 200, 336, 64, 1, 1), (1, 200, 336, 64, 1, 4), (8, 56, 56, 96, 3, 1), (8, 14, 14, 384, 6, 1)]
ODD = (2, 37, 21, 96, 3, 2)  # for errors: an odd grid with padding
TRITON = 'in Triton'


def report(device: str, shapes: list[tuple[int, ...]] = SHAPES, seconds: float = 1) -> str:
    """The block. With Triton only where it is installed; on a CPU (tests) without compiling."""
    name = torch.cuda.get_device_name() if device == 'cuda' else platform.machine()
    arch = 'sm_{}{}'.format(*torch.cuda.get_device_capability()) if device == 'cuda' else 'CPU'
    contenders: dict[str, Callable[..., Tensor]] = {'in place': in_place_dtn, 'eager': eager_dtn}
    if device == 'cuda':
        contenders['compiled eager'] = torch.compile(eager_dtn)
    try:
        import triton

        from experiments.gpu_kernels.dtn_triton import triton_dtn

        contenders[TRITON] = triton_dtn
        version = triton.__version__
    except ImportError:
        version = 'not installed'
    lines = [
        '```',
        f'TokenNorm {__version__}: DTN on {name} ({arch}), torch {torch.__version__}, Triton {version}',
        f'errors against float64: {", ".join(NAMES)}',
    ]
    for dtype in (torch.float32, torch.bfloat16):
        for contender, function in contenders.items():
            figures = ' '.join(f'{error:.0e}' for error in errors(function, device, dtype))
            lines.append(f'  {str(dtype)[6:]:9}{contender:18} {figures}')
    lines.append('in bfloat16, milliseconds forward / forward and backward, and MiB of the latter')
    for shape in shapes:
        lines.append(f'  {"x".join(map(str, shape[:4]))}, {shape[4]} heads, pool {shape[5]}')
        for contender, (forward, step, memory) in measure(contenders, device, shape, seconds).items():
            lines.append(f'    {contender:18} {forward:8.3f} / {step:.3f} {memory:8.1f}')
    return '\n'.join([*lines, '```'])


def arguments(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> list[Tensor]:
    """Tokens and parameters of random values; positions as in training."""
    *grid, heads, _ = shape
    generator = torch.Generator().manual_seed(0)
    sizes = [grid, *[(grid[-1],)] * 2, *[(heads,)] * 2, (heads, 3)]
    x, *parameters = (torch.randn(size, generator=generator) for size in sizes)
    parameters[-1] = parameters[-1] / 3 - torch.tensor([0.5, 0, 0])
    return [x.to(device, dtype).requires_grad_(), *(t.to(device).requires_grad_() for t in parameters)]


def errors(function: Callable[..., Tensor], device: str, dtype: torch.dtype) -> list[float]:
    """Of the result and the gradients."""
    args = arguments(ODD, device, dtype)
    valid = torch.tensor([[ODD[1] - i, ODD[2] - 2 * i] for i in range(ODD[0])], device=device)
    generator = torch.Generator().manual_seed(1)
    grad_y = torch.randn(args[0].shape, generator=generator).to(device, dtype)

    def run(call: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
        y = call(*inputs, pool=ODD[5], valid=valid)
        return [y.detach(), *torch.autograd.grad(y, inputs, grad_y.to(y.dtype))]

    exact = run(eager_dtn, [t.detach().double().requires_grad_() for t in args])
    return [
        ((a.double() - e).abs().max() / e.abs().max()).item() for a, e in zip(run(function, args), exact, strict=True)
    ]


def measure(
    contenders: dict[str, Callable[..., Tensor]], device: str, shape: tuple[int, ...], seconds: float
) -> dict[str, tuple[float, float, float]]:
    """Milliseconds forward, and forward and backward, and MiB of the latter, of LayerNorm and each contender."""
    x, *parameters = arguments(shape, device, torch.bfloat16)
    layer_norm = LayerNorm(shape[3]).to(device, torch.bfloat16)
    functions = {'LayerNorm': lambda: layer_norm(x)}
    for name, function in contenders.items():
        functions[name] = lambda function=function: function(x, *parameters, pool=shape[5])
    grad_y = torch.randn_like(x)

    def forward(function: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                function()

        return run

    def step(function: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: function().backward(grad_y)

    forwards, steps = ({name: kind(function) for name, function in functions.items()} for kind in (forward, step))
    times = [milliseconds(calls, device, seconds=seconds) for calls in (forwards, steps)]
    return {name: (times[0][name], times[1][name], peak_mebibytes(run, device)) for name, run in steps.items()}


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=float, default=1, help='for each shape and direction (default: 1)')
    parser.add_argument('--rehearse', action='store_true')
    args = parser.parse_args()
    if args.rehearse:
        ODD = (2, 3, 5, 8, 2, 2)
        print(report('cpu', [(1, 2, 3, 4, 1, 1)], seconds=0))
    else:
        print(report('cuda', seconds=args.seconds))
