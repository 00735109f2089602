"""Lists the annotations that are probably wrong, and writes them for CVAT, Label Studio and FiftyOne.

examples:
  tokennorm audit WORK_DIR --data DIR --split val --out suspects
  tokennorm audit WORK_DIR --data DIR --folds 3    # of train, by detectors that have not seen it
"""

from pathlib import Path
from typing import Any

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, add_training_options
from tokennorm.cli.command import Parser, add_json, call, command, positive_integer, show
from tokennorm.commands.audit import audit
from tokennorm.commands.test import SPLITS


def build_parser() -> Parser:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    add_options_argument(parser)
    changed: dict[str, dict[str, Any]] = dict(
        data=dict(help='folder, or data.yaml of YOLO: COCO, YOLO, Pascal VOC or CVAT', required=True),
        out=dict(type=Path, help='folder of the files; default: suspects'),
    )
    groups = add_training_options(parser, ('data', 'out', 'allow', 'strict'), **changed)
    groups['data'].add_argument(
        '--split', choices=SPLITS, default='train', help='split to look at; default: %(default)s'
    )
    groups['data'].add_argument(
        '--folds',
        type=positive_integer,
        metavar='K',
        help='train K detectors, each without one part of train, which it judges; repeated, the command continues',
    )
    groups['output'].add_argument(
        '--most',
        type=positive_integer,
        default=200,
        metavar='N',
        help='images to write, those with the most suspicious annotations; default: %(default)s',
    )
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    show(call(audit, args), args)
