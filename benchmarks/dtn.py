"""DTN compared with LayerNorm, with its eager form and with a DTN that builds the T x T matrix: time and memory.

    python benchmarks/dtn.py --threads 1 --clock cpu --out work_dirs/benchmarks    # on a CPU
    python benchmarks/dtn.py --device cuda --dtype bfloat16                        # on a GPU

Prints two tables (`shapes` and `growth`, with the number of tokens), writes each as CSV, and draws the second as a
log-log plot. The figures to look at are the ratios. LayerNorm and DTN alternate without any other contender, which
would evict LayerNorm's tokens from the caches; the eager form and the dense DTN are measured after them. The memory of
a step is what forward and backward of the norm alone allocate, beyond the tokens and the gradient of the result, which
exist before.

docs/speed.md has `--threads 1 --clock cpu --seconds 0.6 --memory-limit 0`, bfloat16 with `--only "s3, 224"`; AVX2 is
two runs, `--only 224` and `--only 800`. The GPU's layers are `--device cuda --dtype bfloat16 --only 800`.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import torch
from dense_dtn import bytes_needed, dense_dtn
from measuring import CLOCKS, milliseconds, peak_mebibytes, print_table, write_csv

from tokennorm.norms import DTN, LayerNorm
from tokennorm.ops.dtn_eager import eager_dtn

# name, batch, height, width, channels, heads, pool
SHAPES = [
    ('PVT s1, 224', 2, 56, 56, 64, 1, 1),
    ('PVT s1, 224', 8, 56, 56, 64, 1, 4),
    ('PVT s2, 224', 8, 28, 28, 128, 2, 2),
    ('PVT s2, 224', 8, 28, 28, 128, 2, 1),
    ('PVT s3, 224', 8, 14, 14, 320, 5, 1),
    ('PVT s4, 224', 8, 7, 7, 512, 8, 1),
    ('Swin s1, 224', 4, 56, 56, 96, 3, 1),
    ('Swin s2, 224', 4, 28, 28, 192, 6, 1),
    ('Swin s3, 224', 4, 14, 14, 384, 12, 1),
    ('ViT-S, 224', 8, 14, 14, 384, 6, 1),
    ('9 heads, 224', 8, 14, 14, 432, 9, 1),
    ('PVT s1, 800', 1, 200, 336, 64, 1, 1),
    ('PVT s1, 800', 1, 200, 336, 64, 1, 4),
    ('PVT s2, 800', 1, 100, 168, 128, 2, 1),
    ('PVT s2, 800', 1, 100, 168, 128, 2, 2),
    ('PVT s3, 800', 1, 50, 84, 320, 5, 1),
    ('PVT s4, 800', 1, 25, 42, 512, 8, 1),
    ('Swin s1, 800', 1, 200, 336, 96, 3, 1),
    ('ViT-S, 800', 1, 50, 84, 384, 6, 1),
]
GROWTH_SIDES = (28, 56, 112, 224)
DOES_NOT_FIT = 'does not fit'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--dtype', default='float32', choices=['float32', 'float16', 'bfloat16'])
    parser.add_argument('--threads', type=int, default=2, help='of a CPU (default: 2)')
    parser.add_argument('--clock', default='wall', choices=list(CLOCKS), help='cpu: the processor time of this process')
    parser.add_argument('--only', default='', help="shapes whose name contains this, or 'growth'")
    parser.add_argument(
        '--seconds',
        type=float,
        default=3,
        help='for each row and direction, and as long again for the eager form and the dense DTN (default: 3)',
    )
    parser.add_argument('--memory-limit', type=float, default=8, help='GiB that a contender may take (default: 8)')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/benchmarks'))
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    # glibc gives maps up to the size of one that was freed before back to the program, not to the system: begin as a
    # program that has trained anything.
    torch.zeros(31 * 2**18)

    print(f'{args.device}, {args.dtype}, {args.threads} threads, {args.clock} clock, torch {torch.__version__}')
    rows = [measure(args, *shape, growth=False) for shape in SHAPES if args.only in shape[0]]
    if rows:
        print_table(rows)
        write_csv(args.out / f'dtn_shapes_{args.device}_{args.dtype}.csv', rows)
    if args.only in ('', 'growth'):
        rows = [
            measure(args, name, 1, side, side, 64, 1, 1, a1=a1, growth=True)
            for name, a1 in (('Eq. 7', None), ('a1 = 0', 0.0))
            for side in GROWTH_SIDES
        ]
        print_table(rows)
        for name in ('Eq. 7', 'a1 = 0'):
            print_exponents(name, [row for row in rows if row['shape'] == name])
        write_csv(args.out / f'dtn_growth_{args.device}_{args.dtype}.csv', rows)
        draw(rows, args.out / f'dtn_growth_{args.device}_{args.dtype}.png')


def measure(
    args: argparse.Namespace,
    name: str,
    batch: int,
    height: int,
    width: int,
    channels: int,
    num_heads: int,
    pool: int,
    growth: bool,
    a1: float | None = None,
) -> dict[str, str]:
    """One row: milliseconds forward and forward + backward, MiB of a step, of each contender, and the ratios."""
    dtype = getattr(torch, args.dtype)
    x = torch.randn(batch, height, width, channels).to(args.device, dtype).requires_grad_()
    grad_y = torch.randn_like(x)
    dtn = DTN(channels, num_heads, pool=pool).to(args.device)
    if a1 is not None:
        with torch.no_grad():
            dtn.position.fill_(a1)
    layer_norm = LayerNorm(channels).to(args.device, dtype if args.device == 'cuda' else torch.float32)
    parameters = (dtn.weight, dtn.bias, dtn.mean_logit, dtn.var_logit, dtn.position)
    contenders: dict[str, Callable] = {
        'LN': layer_norm,
        'ours': dtn,
        'eager': lambda x: eager_dtn(x, *parameters, eps=dtn.eps, pool=pool),
    }
    if bytes_needed(batch, height, width, channels, num_heads, pool) <= args.memory_limit * 2**30:
        contenders['dense'] = lambda x: dense_dtn(x, dtn)

    def forward(norm: Callable) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                norm(x)

        return run

    def step(norm: Callable) -> Callable[[], None]:
        def run() -> None:
            y = norm(x)
            y.backward(grad_y.to(y.dtype))
            x.grad = None  # what is freed during a measurement of memory has to be allocated during it

        return run

    forwards = {name: forward(norm) for name, norm in contenders.items()}
    steps = {name: step(norm) for name, norm in contenders.items()}
    times, step_times = (measure_pair_first(calls, args) for calls in (forwards, steps))
    memory = {name: peak_mebibytes(run, args.device) for name, run in steps.items()}

    row = dict(shape=name, grid=f'{batch}x{height}x{width}x{channels}', heads=str(num_heads), pool=str(pool))
    for title, figures, digits in (('fwd ms', times, 2), ('f+b ms', step_times, 2), ('MiB', memory, 1)):
        for contender in ('LN', 'ours', 'eager', 'dense'):
            row[f'{contender} {title}'] = f'{figures[contender]:.{digits}f}' if contender in figures else DOES_NOT_FIT
    for title, figures in (('fwd', times), ('f+b', step_times), ('MiB', memory)):
        row[f'ours/LN {title}'] = f'{figures["ours"] / figures["LN"]:.1f}'
        row[f'eager/ours {title}'] = f'{figures["eager"] / figures["ours"]:.1f}'
        row[f'dense/ours {title}'] = f'{figures["dense"] / figures["ours"]:.1f}' if 'dense' in figures else '-'
    return row


def measure_pair_first(calls: dict[str, Callable], args: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of LayerNorm and DTN in turns, and of each other contender afterwards."""
    pair = {name: calls[name] for name in ('LN', 'ours')}
    times = milliseconds(pair, args.device, args.clock, args.seconds, rounds=500)
    for name, call in calls.items() - pair.items():
        times |= milliseconds({name: call}, args.device, args.clock, args.seconds)
    return times


def print_exponents(name: str, rows: list[dict[str, str]]) -> None:
    """The k of time ~ T^k from the smallest to the largest grid."""
    octaves = math.log(GROWTH_SIDES[-1] ** 2 / GROWTH_SIDES[0] ** 2)
    for column in ('LN fwd ms', 'ours fwd ms', 'LN f+b ms', 'ours f+b ms'):
        growth = float(rows[-1][column]) / float(rows[0][column])
        print(f'{name}: {column} grows with T to the power of {math.log(growth) / octaves:.2f}')


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Forward + backward milliseconds against the number of tokens, both axes logarithmic."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout='constrained')
    for name, style in (('Eq. 7', '-'), ('a1 = 0', '--')):
        for contender, color in (('LN', 'C0'), ('ours', 'C1'), ('dense', 'C2')):
            column = f'{contender} f+b ms'
            points = [
                (side**2, float(row[column]))
                for side, row in zip(GROWTH_SIDES, (r for r in rows if r['shape'] == name), strict=True)
                if row[column] != DOES_NOT_FIT
            ]
            axes.loglog(*zip(*points, strict=True), style, marker='o', color=color, label=f'{contender}, {name}')
    axes.set(xlabel='tokens', ylabel='forward + backward, ms', title='64 channels, 1 head, batch 1')
    axes.grid(alpha=0.3)
    axes.legend(loc='upper left', bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120)
    print(f'-> {path}')


if __name__ == '__main__':
    main()
