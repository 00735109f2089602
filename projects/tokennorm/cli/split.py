r"""Divides images into train and val: those of a COCO annotation file, or of a YOLO or Pascal VOC folder without val.

It writes train.json and val.json in COCO format, next to the annotation file or into the folder.

examples:
  tokennorm split annotations.json --val 0.2
  tokennorm split frames.json --group '.+(?=_\d+)'    # video3_0001.jpg and video3_0002.jpg stay together
"""

import os
import re
from pathlib import Path

from tokennorm.cli.arguments import add_training_options
from tokennorm.cli.command import Parser, command
from tokennorm.console import say
from tokennorm.findings import Findings, judging
from tokennorm.messages import UserError, user_errors


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('data', help='COCO annotation file of all images, or a YOLO or Pascal VOC folder')
    fraction = 'images for validation; default: %(default)s'
    parser.add_argument('--val', type=float, default=0.2, metavar='FRACTION', help=fraction)
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same split; default: %(default)s')
    group = 'images in whose file names this regular expression finds the same text stay together'
    parser.add_argument('--group', metavar='PATTERN', help=group)
    add_training_options(parser, ('allow', 'strict'))
    args = parser.parse_args(argv)
    if not os.path.exists(os.path.expanduser(args.data)):
        raise UserError(f'{args.data} not found')

    from tokennorm.datasets.coco.inspection import inspect_splits
    from tokennorm.datasets.splitting import find_unsplit, split_annotations

    with judging(Findings(args.allow, args.strict)) as found:
        with user_errors(ValueError, OSError):  # of the user's files
            splits = find_unsplit(Path(args.data).expanduser())
        inspect_splits(dict(train=splits['train']), open_images=False)
    found.stop(masks=False)
    with user_errors(ValueError, OSError, re.error):  # such as a fraction that leaves nothing
        files = split_annotations(splits, args.val, args.seed, args.group)
    found.show()
    say(f'{", ".join(map(str, files.values()))}: check them with `tokennorm check {files["train"].parent}`')
