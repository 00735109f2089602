"""Draws the DTN paper's figures of a trained backbone, in a detector or a classifier.

figures:
  magnitude           token magnitudes after the first norm of blocks, per head, of one image (Fig. 1)
  attention-distance  mean attention distance per head and block (Fig. 2), also printed
  variation           distance of the mean that a block's first norm subtracts from the tokens (Fig. 3b)
  lambda              lambda of mean and variance, over a training run or of a checkpoint (Fig. 4)
  positions           row of P of one token, as initialized and in the checkpoint (Figs. 7, 8)
  directions          tokens before and after a block's first norm, in two components (Fig. 9)
  patch-scales        learned scales of Dual PatchNorm's first norm, arranged as a patch

examples:
  python projects/experiments/dtn_figures/run.py lambda work_dirs/NAME
  python projects/experiments/dtn_figures/run.py magnitude CONFIG CHECKPOINT --images image.jpg
"""

import argparse
from pathlib import Path

from tokennorm.base.files import check_output_file
from tokennorm.cli.arguments import add_options_argument
from tokennorm.cli.command import Parser, command, positive_integer

NAMES = ('magnitude', 'attention-distance', 'variation', 'lambda', 'positions', 'directions', 'patch-scales')


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument('figure', choices=NAMES, metavar='FIGURE', help='one of the figures below')
    parser.add_argument(
        'config', help='config file, or the name of a config; for lambda also the work directory of a training run'
    )
    parser.add_argument('checkpoint', nargs='?', help='trained or published; default: random initialization')
    parser.add_argument(
        '--layers',
        type=int,
        nargs='+',
        metavar='I',
        help='layers to show, counted from 0: of magnitude, positions and directions',
    )
    images = parser.add_argument_group('magnitude, attention-distance, variation and directions')
    images.add_argument('--against', nargs='+', metavar=('CONFIG', 'CHECKPOINT'), help='another model to compare with')
    images.add_argument(
        '--images', type=Path, metavar='PATH', help="folder or file; default: the config's validation data"
    )
    images.add_argument(
        '--num-images', type=positive_integer, default=4, metavar='N', help='evenly spaced; default: %(default)s'
    )
    parser.add_argument('--out', type=Path, metavar='FILE.png', help='default: work_dirs/dtn_figures/CONFIG_FIGURE.png')
    add_options_argument(parser)
    args = parser.parse_args(argv)
    if len(args.against or []) > 2:
        parser.error('--against takes a config and a checkpoint')
    args.out = args.out or Path('work_dirs/dtn_figures') / f'{Path(args.config).stem}_{args.figure}.png'
    check_output_file(args.out)
    return args


@command
def main(argv: list[str]) -> None:
    args = _parse_args(argv)

    import matplotlib
    import torch

    from experiments.dtn_figures.figures import FIGURES, STYLE

    with torch.no_grad(), matplotlib.rc_context(STYLE):
        FIGURES[args.figure](args).savefig(args.out, dpi=110)
    print(args.out)


if __name__ == '__main__':
    main()
