"""Makes the shapes dataset: generated images with boxes and masks in COCO format."""

import argparse
import signal
import sys
from pathlib import Path

import cv2

from tokennorm.datasets import make_shapes_dataset
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.drawing import contact_sheet


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('out', nargs='?', type=Path, default=Path('data/shapes'), help='output folder')
    parser.add_argument('--num-train', type=int, default=600, metavar='N', help='images of the train split')
    parser.add_argument('--num-val', type=int, default=120, metavar='N', help='images of the val split')
    parser.add_argument('--image-size', type=int, default=128, metavar='PX', help='side of the square images (pixels)')
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same dataset')
    parser.add_argument(
        '--preview',
        type=Path,
        metavar='FILE.png',
        help='also draw 24 images of the val split with their boxes, masks and class names',
    )
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('terminated'))  # lets the unfinished folder be removed
    try:
        make_shapes_dataset(args.out, args.num_train, args.num_val, args.image_size, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f'error: {error}')
    if args.preview:
        args.preview.parent.mkdir(parents=True, exist_ok=True)
        if not cv2.imwrite(
            str(args.preview), contact_sheet(find_coco_splits(args.out)['val'], num_images=24, columns=6)
        ):
            sys.exit(f'error: could not write {args.preview}')
        print(f'{args.preview}: a preview of the val split')


if __name__ == '__main__':
    main()
