"""A PVT or Swin with DTN at the paper's pools compared with LayerNorm: time and peak memory of a training step.

python benchmarks/dtn_in_backbones.py --out work_dirs/benchmarks
python benchmarks/dtn_in_backbones.py --backbone Swin --threads 1 --clock cpu
python benchmarks/dtn_in_backbones.py --device cuda --dtype bfloat16 --batch 64 [--compile --only LN DTN]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import CLOCKS, milliseconds, peak_mebibytes, print_table, write_csv

from tokennorm.backbones import PVT, Swin

BACKBONES = {'PVT': PVT, 'Swin': Swin}
CONTENDERS = {
    'LN': None,
    'DTN': dict(type='DTN'),
    'DTN, pool 1': dict(type='DTN', pool=1),
    'LocalLayerNorm': dict(type='LocalLayerNorm'),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--dtype', default='float32', choices=['float32', 'bfloat16'], help='bfloat16: under autocast')
    parser.add_argument('--backbone', default='PVT', choices=list(BACKBONES))
    parser.add_argument('--arch', default='tiny')
    parser.add_argument('--batch', type=int, default=4)
    parser.add_argument('--size', type=int, default=224, help='side of the images, in pixels')
    parser.add_argument('--threads', type=int, default=2, help='of a CPU (default: 2)')
    parser.add_argument('--clock', default='wall', choices=list(CLOCKS), help='cpu: the processor time of this process')
    parser.add_argument('--compile', action='store_true', help='the backbone after torch.compile')
    parser.add_argument('--only', nargs='+', default=list(CONTENDERS), choices=list(CONTENDERS), help='LN among them')
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/benchmarks'))
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    kind = ', compiled' if args.compile else ''
    print(f'{args.device}, {args.dtype}{kind}, {args.threads} threads, {args.clock} clock, torch {torch.__version__}')

    images = torch.randn(args.batch, 3, args.size, args.size, device=args.device)
    steps = {name: training_step(args, cfg, images) for name, cfg in CONTENDERS.items() if name in args.only}
    times = milliseconds(steps, args.device, args.clock, args.seconds)
    memory = {name: peak_mebibytes(step, args.device) for name, step in steps.items()}
    rows = [
        {
            f'{args.backbone}-{args.arch}': name,
            'step ms': f'{times[name]:.1f}',
            '/ LN ': f'{times[name] / times["LN"]:.3f}',
            'peak MiB': f'{memory[name]:.0f}',
            '/ LN': f'{memory[name] / memory["LN"]:.2f}',
        }
        for name in steps
    ]
    print_table(rows)
    write_csv(
        args.out / f'dtn_in_backbones_{args.backbone}_{args.arch}_{args.size}_{args.device}_{args.dtype}.csv', rows
    )


def training_step(args: argparse.Namespace, token_norm_cfg: dict | None, images: torch.Tensor) -> Callable[[], None]:
    """Forward and backward of the four feature maps' mean squares."""
    backbone = BACKBONES[args.backbone](args.arch, token_norm_cfg=token_norm_cfg).to(args.device).train()
    if args.compile:
        backbone.compile()
    dtype = getattr(torch, args.dtype)

    def run() -> None:
        backbone.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=dtype, enabled=dtype != torch.float32):
            loss = sum(x.float().square().mean() for x in backbone(images))
        loss.backward()

    return run


if __name__ == '__main__':
    main()
