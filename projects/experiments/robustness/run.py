"""Evaluates a classifier or detector under ImageNet-C's corruptions.

Prints errors of a classifier, and with --baseline mCE; mPC and rPC of a detector. Each corruption and severity is
written to the file of results when it is done, and not computed again.
"""

import argparse
from pathlib import Path

from experiments.robustness.names import ALEXNET, CORRUPTIONS, SEVERITIES
from tokennorm.cli.arguments import add_options_argument
from tokennorm.cli.command import command, make_parser


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument('config', help='config file, or the name of a config')
    parser.add_argument('checkpoint', help='checkpoint, or the work directory of a training run')
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='data to use instead of the data of the config: as for `tokennorm check`, or for classifiers a folder per '
        'class',
    )
    parser.add_argument(
        '--classes',
        type=Path,
        metavar='PATH',
        help='names of some classes of a classifier, as folders or lines of a file; images of other classes are left '
        'out, and the classifier cannot answer with them',
    )
    parser.add_argument(
        '--corruptions',
        nargs='+',
        choices=['none', *CORRUPTIONS],
        metavar='NAME',
        help='names of corruptions, or none; default: all 15',
    )
    parser.add_argument(
        '--severities',
        nargs='+',
        type=int,
        choices=SEVERITIES,
        default=list(SEVERITIES),
        metavar='N',
        help='default: 1 to 5',
    )
    parser.add_argument('--images', type=int, metavar='N', help='number of images, evenly spaced; default: all')
    parser.add_argument(
        '--baseline',
        metavar=f'{ALEXNET}|FILE',
        help="errors that mCE divides by: AlexNet's on ImageNet-C, or the errors in another model's file of results",
    )
    parser.add_argument('--out', type=Path, help='file of results, .json; default: WORK_DIR/robustness.json')
    parser.add_argument('--show-dir', type=Path, help='draw the corruptions of the first image into this folder')
    parser.add_argument(
        '--workers', type=int, metavar='N', help='processes that read images; default: as in the config'
    )
    parser.add_argument('--work-dir', help='directory of logs; default: as in the config, or work_dirs/NAME')
    add_options_argument(parser)
    parser.set_defaults(launcher='none', local_rank=0)
    args = parser.parse_args(argv)
    if args.images is not None and args.images < 1:
        parser.error(f'--images {args.images} must be at least 1')
    if args.workers is not None and args.workers < 0:
        parser.error(f'--workers {args.workers} must be at least 0')
    if args.out is not None and args.out.suffix != '.json':
        parser.error(f'--out {args.out}: the file must end in .json')
    if args.corruptions is not None and 'none' in args.corruptions and len(args.corruptions) > 1:
        parser.error('--corruptions: none cannot be combined with others')
    if args.corruptions == ['none'] and args.baseline:
        parser.error('--baseline needs corruptions')
    args.corruptions = [name for name in CORRUPTIONS if args.corruptions is None or name in args.corruptions]
    args.severities = sorted(set(args.severities))
    return args


@command
def main(argv: list[str]) -> None:
    args = _parse_args(argv)

    from experiments.robustness.command import evaluate

    evaluate(args)


if __name__ == '__main__':
    main()
