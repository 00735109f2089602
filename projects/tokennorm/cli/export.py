"""Writes a detector as one file that runs without its config: .onnx, .pt2 (PyTorch) or .xml (OpenVINO).

A model card, README.md, is written next to it.

examples:
  tokennorm export WORK_DIR detector.onnx --verify DIR
  tokennorm export CONFIG CHECKPOINT detector.pt2
"""

from pathlib import Path

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, add_training_options
from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.export import export
from tokennorm.commands.test import SPLITS


def build_parser() -> Parser:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument('out', type=Path, metavar='OUT', help='output file; must end in .onnx, .pt2 or .xml')
    to_file, verification = map(parser.add_argument_group, ('file', 'verification'))
    to_file.add_argument(
        '--fp16', action='store_true', help='compute backbone, neck and heads in float16, which halves the file'
    )
    to_file.add_argument(
        '--int8',
        action='store_true',
        help='quantize convolutions and linear layers to INT8 with the images of --calibrate; for .onnx and .xml',
    )
    to_file.add_argument(
        '--batch-size',
        type=int,
        metavar='1',
        help='fix an .onnx or .xml file to one image, which it cuts out of the canvas by itself: faster where the '
        'detector masks padding; default: any number of images',
    )
    to_file.add_argument(
        '--calibrate', type=Path, metavar='DIR', help='folder of images for --int8, of which at most 100 are used'
    )
    to_file.add_argument(
        '--license', default='', help='license of the weights, for the metadata of the file and its model card'
    )
    verification.add_argument(
        '--verify',
        type=Path,
        metavar='DIR',
        help='dataset in any format of --data: evaluate the written file and PyTorch on its images; the exit status '
        'is 1 if their APs, from 0 to 100, differ by 0.05 or more, with --fp16 by 0.5, or with --int8 if that of '
        'the file is lower by 1.0 or more. Not for .pt2',
    )
    verification.add_argument('--split', choices=SPLITS, default='val', help='split for --verify; default: %(default)s')
    to_file.add_argument(
        '--thresholds',
        metavar='best|NUMBER|FILE',
        help='score thresholds of each class for the metadata of the file, where `--thresholds best` of `predict` '
        "finds them: best for those that the training run's report recommends, a number, or a thresholds.json; "
        'default: best if the run has them',
    )
    add_training_options(parser, ('allow', 'strict'))
    add_options_argument(parser)
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    show(call(export, args), args)
