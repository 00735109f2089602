"""Time of a one-dimensional DTN compared with LayerNorm, by the number of tokens.

    python benchmarks/sequences.py

Two sequences of width 512 with 8 heads, as in Long Range Arena. The second half of the second one is padding.
Processor time of one thread, forward and backward together.
"""

import argparse
from functools import partial

import torch
from measuring import milliseconds, print_table
from torch import Tensor, nn

from tokennorm.norms import DTN, LayerNorm

LENGTHS = (250, 500, 1000, 2000)


def step(norm: nn.Module, x: Tensor, valid: Tensor, grad: Tensor) -> None:
    norm(x, valid).backward(grad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=float, default=3, help='for each length (default: 3)')
    parser.add_argument('--dims', type=int, default=512, help='channels (default: 512)')
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dtn, layer_norm = DTN(args.dims, 8), LayerNorm(args.dims)
    rows = []
    for length in LENGTHS:
        x = torch.randn(2, 1, length, args.dims, requires_grad=True)
        grad = torch.randn_like(x)
        valid = torch.tensor([[1, length], [1, length // 2]])
        steps = {name: partial(step, norm, x, valid, grad) for name, norm in (('ln', layer_norm), ('dtn', dtn))}
        times = milliseconds(steps, 'cpu', 'cpu', args.seconds)
        rows.append(
            {
                'tokens': str(length),
                'LayerNorm, ms': f'{times["ln"]:.2f}',
                'DTN, ms': f'{times["dtn"]:.2f}',
                'DTN, microseconds per token': f'{500 * times["dtn"] / length:.1f}',
            }
        )
    print_table(rows)


if __name__ == '__main__':
    main()
