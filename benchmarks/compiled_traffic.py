"""Memory traffic of LayerNorm and of DTN: after torch.compile, operation by operation, and in Triton.

    python benchmarks/compiled_traffic.py [--dtype bfloat16] [--only TEXT]

Prints, for a forward pass and a training step, the bytes per element of the tokens that kernels and matrix products
read and write, how many of both there are, and the bytes per element that are saved for the backward pass. inductor
counts them while it compiles for the CPU; nothing is timed. A GPU's kernels may be fused differently. "not compiled" is
each operation of torch that is not a view, with all that it reads and writes. Of Triton's kernels each tensor that they
get counts once, as if what neighboring programs read twice came from the cache.
"""

import argparse
import math
from collections.abc import Callable

import torch
from measuring import print_table
from torch._inductor import config, metrics
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.jit import JITFunction

from experiments.gpu_kernels import triton_dtn
from tokennorm.norms import DTN, LayerNorm
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_in_place import Call, in_place_dtn

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


class Operations(TorchDispatchMode):
    """Counts operations that are not views, and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.count = self.products = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = str(function)
        if not function.is_view and not any(part in name for part in ('empty', 'detach', '_unsafe_view')):
            read = tree_leaves((args, {key: value for key, value in (kwargs or {}).items() if key != 'out'}))
            self.bytes += sum(size(t) for t in (*read, *tree_leaves(result)) if isinstance(t, torch.Tensor))
            self.products += 'mm.' in name
            self.count += 'mm.' not in name
        return result


def size(t: torch.Tensor) -> int:
    """Bytes of a tensor, of what is expanded once."""
    numbers = [length for length, stride in zip(t.shape, t.stride(), strict=True) if stride]
    return t.itemsize * math.prod(numbers)


def plain_traffic(function: Callable, x: torch.Tensor, backward: bool) -> dict[str, str]:
    """The same of the operations one by one. A function with `gradients` has its backward pass there."""
    x = x.clone().requires_grad_(backward)
    grad_y = torch.ones_like(x)
    with Operations() as found:
        y = function(x)
        if backward:
            gradients = getattr(function, 'gradients', None)
            gradients(x, grad_y) if gradients else y.backward(grad_y)
    return {
        'bytes per element': f'{found.bytes / x.numel():.0f}',
        'kernels': str(found.count),
        'matrix products': str(found.products),
    }


def saved_bytes(function: Callable, x: torch.Tensor) -> str:
    """Bytes per element of the storages that autograd keeps, the tokens among them."""
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = function(x.clone().requires_grad_())
    del y
    return f'{sum(storage.nbytes() for storage in kept.values()) / x.numel():.1f}'


class InPlace:
    """DTN in place, without the check of its backward pass that tensors have memory, which counting denies."""

    def __init__(self, parameters: tuple[torch.Tensor, ...], pool: int) -> None:
        self.parameters, self.pool = parameters, pool

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        call = Call(x, self.parameters, 1e-5, self.pool, None)
        self.own = call.own_mean, call.own_total
        return call.normalized(x.dtype)

    @torch.no_grad()
    def gradients(self, x: torch.Tensor, grad_y: torch.Tensor) -> None:
        Call(x, self.parameters, 1e-5, self.pool, None, *self.own).gradients(grad_y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dtype', default='float32', choices=['float32', 'float16', 'bfloat16'])
    parser.add_argument('--only', default='', help='contenders with this text in their names')
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    torch._logging.set_logs(inductor_metrics=True)  # inductor counts bytes only where this is on
    rows = []
    with config.patch(fx_graph_cache=False):
        for *shape, heads, pool in SHAPES:
            layer_norm, norm = LayerNorm(shape[-1]).to(dtype), DTN(shape[-1], heads)
            parameters = (norm.weight, norm.bias, norm.mean_logit, norm.var_logit, norm.position)
            eager, in_place = (
                lambda x, f=f, p=parameters, pool=pool: f(x, *p, pool=pool) for f in (eager_dtn, in_place_dtn)
            )
            functions = {
                'LayerNorm': (traffic, layer_norm, layer_norm),
                'DTN': (traffic, eager, None),
                'DTN, eager, not compiled': (plain_traffic, eager, eager),
                'DTN, in place, not compiled': (plain_traffic, InPlace(parameters, pool), in_place),
                'DTN, Triton': (triton_traffic, lambda x, p=parameters, pool=pool: triton_dtn(x, *p, pool=pool), None),
            }
            for name, (count, function, saving) in functions.items():
                if args.only not in name:
                    continue
                for backward in (False, True):
                    row = {'shape': 'x'.join(map(str, shape)), 'heads': str(heads), 'pool': str(pool), 'norm': name}
                    row['pass'] = 'step' if backward else 'forward'
                    x = torch.randn(shape).to(dtype)
                    with torch.set_grad_enabled(backward):
                        row |= count(function, x, backward)
                        row['saved'] = saved_bytes(saving, x) if backward and saving else '-'
                    rows.append(row)
    print_table(rows)


if __name__ == '__main__':
    main()
