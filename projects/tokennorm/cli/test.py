"""Evaluates a detector or a classifier.

examples:
  tokennorm test WORK_DIR
  tokennorm test WORK_DIR --data DIR --split train --report    # with a list of likely label errors
  tokennorm test CONFIG CHECKPOINT --data DIR --report
  tokennorm test detector-1a2b3c4d.pth --data DIR    # a published file
"""

import argparse
from pathlib import Path

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, add_training_options
from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.test import SPLITS, test


def build_parser() -> Parser:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    add_options_argument(parser)
    out = dict(type=Path, help='directory of logs and reports; default: the folder test next to the checkpoint')
    groups = add_training_options(parser, ('data', 'launcher', 'out', 'allow', 'strict'), out=out)
    parser.add_argument('--work-dir', type=Path, help=argparse.SUPPRESS)  # the former name of --out
    data, output = groups['data'], groups['output']
    output.add_argument('--predictions', type=Path, metavar='FILE', help='write the predictions to this .pkl file')
    output.add_argument('--show', action='store_true', help='show the predictions in a window')
    output.add_argument('--show-dir', help='draw predictions into this folder of the work directory')
    output.add_argument('--report', action='store_true', help='write report.html into the work directory')
    data.add_argument(
        '--tta',
        action='store_true',
        help='test-time augmentation: merge the boxes of each image and its mirror image, or of the views that the '
        'tta_pipeline of the config has',
    )
    data.add_argument('--split', choices=SPLITS, help='split to evaluate; default: test, or val of --data without one')
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    if args.out is not None and args.out.suffix in ('.pkl', '.pickle'):  # as mmdet's tools have it
        args.out, args.predictions = None, args.predictions or args.out
    args.out = args.out or args.work_dir
    show(call(test, args), args)
