"""Divides one COCO annotation file into train.json and val.json next to it."""

import argparse
from pathlib import Path

from tokennorm.cli.command import command, make_parser
from tokennorm.messages import user_errors


@command
def main(argv: list[str]) -> None:
    parser = make_parser(__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('ann_file', type=Path, help='annotation file of all images')
    parser.add_argument('--val', type=float, default=0.2, metavar='FRACTION', help='fraction of images for validation')
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same split')
    args = parser.parse_args(argv)

    from tokennorm.datasets.coco.splitting import split_annotations

    with user_errors(ValueError, FileExistsError):
        files = split_annotations(args.ann_file, args.val, args.seed)
    print(f'{", ".join(map(str, files.values()))}: check them with `tokennorm check DIR`')
