"""Compares AP, time per image and size of a detector in PyTorch and in its exported files, in one table.

Each image goes through all of them in turn, on the CPU, one image per forward pass. The table has AP from 0 to 100,
and median milliseconds from decoded pixels to detections.

examples:
  tokennorm benchmark WORK_DIR detector.onnx fp16.onnx int8.onnx detector.xml --data DIR
"""

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, add_training_options, take_back
from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.benchmark import benchmark
from tokennorm.commands.test import SPLITS


def build_parser() -> Parser:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument('files', nargs='+', metavar='FILE', help='.onnx and .xml files of `tokennorm export`')
    parser.add_argument('--data', required=True, metavar='DIR', help='dataset in any format of `tokennorm train`')
    parser.add_argument('--split', choices=SPLITS, default='val', help='its images; default: %(default)s')
    add_options_argument(parser)
    add_training_options(parser, ('allow', 'strict'))
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    take_back(args, following='files')
    show(call(benchmark, args), args)
