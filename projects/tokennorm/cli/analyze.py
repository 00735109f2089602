"""Draws the DTN paper's figures of a trained backbone, in a detector or a classifier.

examples:
  tokennorm analyze lambda work_dirs/NAME
  tokennorm analyze magnitude CONFIG CHECKPOINT --images image.jpg
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from tokennorm.cli.arguments import add_options_argument
from tokennorm.cli.command import command, make_parser
from tokennorm.files import check_output_file
from tokennorm.messages import user_errors


class _Figure(NamedTuple):
    """Help of a figure, how many images it reads by default, and whether layers can be chosen."""

    text: str
    images: int = 0
    layers: bool = False


_FIGURES = {
    'magnitude': _Figure('token magnitudes after the first norm of blocks, per head (Fig. 1)', images=1, layers=True),
    'attention-distance': _Figure('mean attention distance per head and block (Fig. 2), also printed', images=8),
    'variation': _Figure(
        "distance of the mean that a block's first norm subtracts from the tokens (Fig. 3b)", images=8
    ),
    'lambda': _Figure('lambda of mean and variance, over a training run or of a checkpoint (Fig. 4)'),
    'positions': _Figure('row of P of one token, as initialized and in the checkpoint (Figs. 7, 8)', layers=True),
    'directions': _Figure(
        "tokens before and after a block's first norm, in two components (Fig. 9)", images=3, layers=True
    ),
    'patch-scales': _Figure("learned scales of Dual PatchNorm's first norm, arranged as a patch"),
}


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = make_parser(__doc__)
    figures = parser.add_subparsers(dest='figure', required=True, metavar='FIGURE')
    for name, (text, images, layers) in _FIGURES.items():
        figure = figures.add_parser(name, help=text, description=text)
        or_run = ', or the work directory of a training run' if name == 'lambda' else ''
        figure.add_argument('config', help=f'config file, or the name of a config{or_run}')
        figure.add_argument('checkpoint', nargs='?', help='trained or published; default: random initialization')
        if images:
            figure.add_argument(
                '--against', nargs='+', metavar=('CONFIG', 'CHECKPOINT'), help='another model to compare with'
            )
            figure.add_argument(
                '--images', type=Path, metavar='PATH', help="folder or file; default: the config's validation data"
            )
            figure.add_argument(
                '--num-images', type=int, default=images, metavar='N', help=f'evenly spaced; default: {images}'
            )
        if layers:
            figure.add_argument('--layers', type=int, nargs='+', metavar='I', help='layers to show, counted from 0')
        figure.add_argument(
            '--out', type=Path, metavar='FILE.png', help='default: work_dirs/analysis/CONFIG_FIGURE.png'
        )
        add_options_argument(figure)
    parser.set_defaults(num_images=1, against=None)
    args = parser.parse_args(argv)
    if args.num_images < 1:
        raise SystemExit(f'error: --num-images {args.num_images} must be at least 1')
    if len(args.against or []) > 2:
        raise SystemExit('error: --against takes a config and a checkpoint')
    args.out = args.out or Path('work_dirs/analysis') / f'{Path(args.config).stem}_{args.figure}.png'
    if args.out.suffix.lower() != '.png':
        raise SystemExit(f'error: --out {args.out} must end in .png')
    with user_errors(ValueError, where='--out: '):
        check_output_file(args.out)
    return args


@command
def main(argv: list[str]) -> None:
    args = _parse_args(argv)

    import cv2
    import torch

    from tokennorm.analysis.figures import FIGURES

    with user_errors(ImportError, OSError, RuntimeError, ValueError, cv2.error):
        with torch.no_grad():
            figure = FIGURES[args.figure](args)
        figure.savefig(args.out, dpi=110, pil_kwargs=dict(compress_level=9))
    print(args.out)
