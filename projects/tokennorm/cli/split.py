r"""Divides images into train and val: those of a COCO annotation file, or of a YOLO or Pascal VOC folder without val.

It writes train.json and val.json in COCO format, next to the annotation file or into the folder.

examples:
  tokennorm split annotations.json --val 0.2
  tokennorm split frames.json --group '.+(?=_\d+)'    # video3_0001.jpg and video3_0002.jpg stay together
"""

from tokennorm.cli.arguments import add_training_options
from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.split import split


def build_parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument('data', help='COCO annotation file of all images, or a YOLO or Pascal VOC folder')
    fraction = 'images for validation; default: %(default)s'
    parser.add_argument('--val', type=float, default=0.2, metavar='FRACTION', help=fraction)
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same split; default: %(default)s')
    group = 'images in whose file names this regular expression finds the same text stay together'
    parser.add_argument('--group', metavar='PATTERN', help=group)
    add_training_options(parser, ('allow', 'strict'))
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    show(call(split, args), args)
