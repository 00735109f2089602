"""Memory traffic of DTN's eager form and of LayerNorm after torch.compile, and of DTN in Triton.

    python benchmarks/compiled_traffic.py [--dtype bfloat16]

Prints, for a forward pass and a training step, the bytes per element of the tokens that generated kernels and matrix
products read and write, and how many of both there are. inductor counts them while it compiles for the CPU; nothing is
timed. A GPU's kernels may be fused differently. Of Triton's kernels each tensor that they get counts once, as if what
neighboring programs read twice came from the cache.
"""

import argparse
from collections.abc import Callable

import torch
from measuring import print_table
from torch._inductor import config, metrics
from triton.runtime.jit import JITFunction

from experiments.gpu_kernels import triton_dtn
from tokennorm.norms import DTN, LayerNorm
from tokennorm.ops.dtn_eager import eager_dtn

# batch, height, width, channels, heads, pool
SHAPES = [(1, 200, 336, 64, 1, 1), (1, 200, 336, 64, 1, 4), (1, 50, 84, 384, 6, 1), (8, 14, 14, 384, 6, 1)]


def traffic(function: Callable, x: torch.Tensor, backward: bool) -> dict[str, str]:
    """Bytes per element of x, generated kernels, and matrix products of a call, and of its backward pass."""
    torch.compiler.reset()
    metrics.reset()
    compiled = torch.compile(function, fullgraph=True)
    y = compiled(x.clone().requires_grad_(backward))
    if backward:
        y.backward(torch.ones_like(y))
    products = sum(type(node).__name__ == 'ExternKernelSchedulerNode' for node, _ in metrics.nodes_num_elem)
    return {
        'bytes per element': f'{metrics.num_bytes_accessed / x.numel():.0f}',
        'kernels': str(metrics.generated_kernel_count),
        'matrix products': str(products),
    }


def triton_traffic(function: Callable, x: torch.Tensor, backward: bool) -> dict[str, str]:
    """The same for kernels in Triton, which are not run."""
    launches = []
    run = JITFunction.run
    JITFunction.run = lambda kernel, *args, grid, warmup, **kwargs: launches.append(args)
    try:
        y = function(x.clone().requires_grad_(backward))
        if backward:
            y.backward(torch.ones_like(y))
    finally:
        JITFunction.run = run
    read_or_written = sum(
        t.numel() * t.itemsize
        for args in launches
        for t in {arg.data_ptr(): arg for arg in args if isinstance(arg, torch.Tensor)}.values()
    )
    return {
        'bytes per element': f'{read_or_written / x.numel():.0f}',
        'kernels': str(len(launches)),
        'matrix products': '0',
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dtype', default='float32', choices=['float32', 'float16', 'bfloat16'])
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    torch._logging.set_logs(inductor_metrics=True)  # inductor counts bytes only where this is on
    rows = []
    with config.patch(fx_graph_cache=False):
        for *shape, heads, pool in SHAPES:
            layer_norm, norm = LayerNorm(shape[-1]).to(dtype), DTN(shape[-1], heads)
            parameters = (norm.weight, norm.bias, norm.mean_logit, norm.var_logit, norm.position)
            functions = {
                'LayerNorm': (traffic, layer_norm),
                'DTN': (traffic, lambda x, p=parameters, pool=pool: eager_dtn(x, *p, pool=pool)),
                'DTN, Triton': (triton_traffic, lambda x, p=parameters, pool=pool: triton_dtn(x, *p, pool=pool)),
            }
            for name, (count, function) in functions.items():
                for backward in (False, True):
                    row = {'shape': 'x'.join(map(str, shape)), 'heads': str(heads), 'pool': str(pool), 'norm': name}
                    row['pass'] = 'step' if backward else 'forward'
                    with torch.set_grad_enabled(backward):
                        rows.append(row | count(function, torch.randn(shape).to(dtype), backward))
    print_table(rows)


if __name__ == '__main__':
    main()
