"""Make the shapes dataset: generated pictures with boxes and masks in COCO format."""

import argparse
import signal
import sys
from pathlib import Path

import cv2
import numpy as np
from pycocotools.coco import COCO

from tokennorm.datasets import METAINFO, make_shapes_dataset


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('out', nargs='?', type=Path, default=Path('data/shapes'), help='folder of the dataset')
    parser.add_argument('--num-train', type=int, default=600, metavar='N', help='images of the train split')
    parser.add_argument('--num-val', type=int, default=120, metavar='N', help='images of the val split')
    parser.add_argument('--image-size', type=int, default=160, metavar='PX', help='side of the square images (pixels)')
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same dataset')
    parser.add_argument('--workers', type=int, default=1, metavar='N', help='processes; they do not change the result')
    parser.add_argument('--overwrite', action='store_true', help='replace a dataset of other settings')
    parser.add_argument(
        '--preview',
        type=Path,
        metavar='FILE.png',
        help='also draw 24 images of the val split with their boxes, masks and class names',
    )
    return parser.parse_args(argv)


def draw(image, annotations, names, scale=2):
    """`image` (H, W, 3) uint8 BGR enlarged by `scale`, with the boxes, mask outlines and class names drawn on it."""
    image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    for box, mask, category in annotations:
        colour = METAINFO['palette'][METAINFO['classes'].index(names[category])][::-1]
        mask = cv2.resize(mask, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
        contours, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(image, contours, -1, colour, 1)
        x, y, w, h = (int(value * scale) for value in box)
        cv2.rectangle(image, (x, y), (x + w - 1, y + h - 1), (255, 255, 255), 1)
        corner = (x + 2, max(y - 3, 10))
        for shade, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):
            cv2.putText(image, names[category], corner, cv2.FONT_HERSHEY_SIMPLEX, 0.4, shade, thickness, cv2.LINE_AA)
    return image


def contact_sheet(root, split='val', columns=6, rows=4):
    """The first images of a split with their annotations, as one image (rows * H, columns * W, 3) uint8 BGR."""
    coco = COCO(root / 'annotations' / f'{split}.json')
    names = {category['id']: category['name'] for category in coco.dataset['categories']}
    tiles = []
    for info in coco.dataset['images'][: columns * rows]:
        annotations = [(a['bbox'], coco.annToMask(a), a['category_id']) for a in coco.imgToAnns[info['id']]]
        image = cv2.imread(str(root / 'images' / split / info['file_name']))
        tiles.append(cv2.copyMakeBorder(draw(image, annotations, names), 2, 2, 2, 2, cv2.BORDER_CONSTANT))
    columns = min(columns, len(tiles))
    tiles += [np.zeros_like(tiles[0])] * (-len(tiles) % columns)
    return np.vstack([np.hstack(tiles[start : start + columns]) for start in range(0, len(tiles), columns)])


def main(argv=None):
    args = parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('terminated'))  # lets the unfinished folder be removed
    try:
        root = make_shapes_dataset(
            args.out, args.num_train, args.num_val, args.image_size, args.seed, args.overwrite, args.workers
        )
    except (FileExistsError, ValueError) as error:
        sys.exit(f'error: {error}')
    if args.preview:
        args.preview.parent.mkdir(parents=True, exist_ok=True)
        if not cv2.imwrite(str(args.preview), contact_sheet(root)):
            sys.exit(f'error: could not write {args.preview}')
        print(f'{args.preview}: a preview of the val split')


if __name__ == '__main__':
    main()
