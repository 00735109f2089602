"""Makes the shapes dataset: generated images with boxes and masks in COCO format."""

import argparse
import signal
import sys
from pathlib import Path

from experiments.shapes import make_shapes_dataset


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('out', nargs='?', type=Path, default=Path('data/shapes'), help='output folder')
    parser.add_argument('--num-train', type=int, default=600, metavar='N', help='images of the train split')
    parser.add_argument('--num-val', type=int, default=120, metavar='N', help='images of the val split')
    parser.add_argument('--image-size', type=int, default=128, metavar='PX', help='side of the square images (pixels)')
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same dataset')
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('terminated'))  # lets the unfinished folder be removed
    try:
        make_shapes_dataset(args.out, args.num_train, args.num_val, args.image_size, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()
