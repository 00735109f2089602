"""Divides one COCO annotation file into train.json and val.json beside it: `python tools/split_dataset.py FILE`."""

import argparse
from pathlib import Path

from tokennorm.datasets.coco.splitting import split_annotations


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('ann_file', type=Path, help='annotation file of all images')
    parser.add_argument('--val', type=float, default=0.2, metavar='SHARE', help='share of the images for validation')
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same split')
    args = parser.parse_args(argv)
    try:
        files = split_annotations(args.ann_file, args.val, args.seed)
    except (ValueError, FileExistsError) as error:
        raise SystemExit(f'error: {error}') from None
    print(f'{", ".join(map(str, files.values()))}: check them with python tools/check_dataset.py')


if __name__ == '__main__':
    main()
