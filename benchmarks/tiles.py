"""AP of a detector on large images that are stitched from small ones: whole, in tiles, and the small images themselves.

    python benchmarks/tiles.py CONFIG CHECKPOINT DATA [--side 4] [--tile S] [--overlap 0.2]

DATA is a folder in COCO format. SIDE x SIDE images of its most frequent size make one stitched image and keep their
pixels, so that the objects of all three rows are the same. The test pipeline of CONFIG resizes each image that the
detector gets. All detections count, not only 100 per image.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import print_table
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

from tokennorm.config.open_config import read_config
from tokennorm.datasets.image_files import read_image
from tokennorm.export.measure import all_detections_ap
from tokennorm.inference.runtime import Detections
from tokennorm.inference.tiles import detect_in_tiles
from tokennorm.inference.torch_detector import TorchDetector


def stitch(images: list[np.ndarray], side: int) -> list[np.ndarray]:
    """Returns images (side * H, side * W, 3) of side^2 images (H, W, 3) each, row by row; the rest is left out."""
    groups = [images[i : i + side**2] for i in range(0, len(images) - side**2 + 1, side**2)]
    return [
        np.concatenate([np.concatenate(group[r : r + side], axis=1) for r in range(0, side**2, side)])
        for group in groups
    ]


def stitched_annotations(truth: COCO, image_ids: list[int], size: tuple[int, int], side: int) -> list[dict[str, Any]]:
    """Returns the annotations of the images that `stitch` makes, which are numbered from 1; side 1 only numbers them.

    Args:
        truth: Annotations of the small images.
        image_ids: Their ids, in the order of `stitch`.
        size: Their height and width.
        side: As of `stitch`.
    """
    height, width = size
    annotations = []
    for place, image_id in enumerate(image_ids):
        row, column = divmod(place % side**2, side)
        for old in truth.imgToAnns[image_id]:
            x, y, w, h = old['bbox']
            mask = np.zeros((side * height, side * width), dtype=np.uint8, order='F')
            inner = mask[row * height :][:height, column * width :][:, :width]
            inner[:] = truth.annToMask(old) if old.get('segmentation') else 0
            encoded = coco_masks.encode(mask)
            annotations.append(
                old
                | dict(
                    id=len(annotations) + 1,
                    image_id=place // side**2 + 1,
                    bbox=[x + column * width, y + row * height, w, h],
                    segmentation=dict(size=encoded['size'], counts=encoded['counts'].decode()),
                )
            )
    return annotations


def evaluate(
    truth: dict[str, Any], category_ids: list[int], images: list[np.ndarray], detect: Callable[[np.ndarray], Detections]
) -> dict[str, str]:
    """Returns the AP of the boxes and, if there are any, of the masks."""
    found = [
        one | dict(image_id=i) for i, image in enumerate(images, 1) for one in detect(image).annotations(category_ids)
    ]
    kinds = ['bbox'] + ['segm'] * any('segmentation' in one for one in found)
    return {f'{kind} AP': f'{all_detections_ap(truth, found, kind):.3f}' for kind in kinds}


def as_coco(
    annotations: list[dict[str, Any]], images: list[np.ndarray], categories: list[dict[str, Any]]
) -> dict[str, Any]:
    """Returns annotations of images that are numbered from 1."""
    return dict(
        images=[dict(id=i, height=len(image), width=image.shape[1]) for i, image in enumerate(images, 1)],
        annotations=annotations,
        categories=categories,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('data', type=Path, help='folder with images/ and annotations/SPLIT.json')
    parser.add_argument('--split', default='val')
    parser.add_argument('--side', type=int, default=4, help='small images per row and column; default: 4')
    parser.add_argument('--tile', type=int, help='side of a tile in pixels; default: the longer side of a small image')
    parser.add_argument('--overlap', type=float, default=0.2)
    parser.add_argument('--max-per-img', type=int, default=400, help='detections per forward pass; default: 400')
    args = parser.parse_args()
    small = COCO(str(args.data / 'annotations' / f'{args.split}.json'))
    sizes = {i: (image['height'], image['width']) for i, image in small.imgs.items()}
    (size, _), *_ = Counter(sizes.values()).most_common()
    ids = [i for i in sorted(sizes) if sizes[i] == size]
    ids = ids[: len(ids) // args.side**2 * args.side**2]
    images = [read_image(args.data / 'images' / small.imgs[i]['file_name']) for i in ids]

    head = 'rcnn.' if 'rcnn' in read_config(args.config).model.test_cfg else ''
    limit = {f'model.test_cfg.{head}max_per_img': args.max_per_img}
    detector = TorchDetector(args.config, args.checkpoint, options=limit)
    category_ids = [small.getCatIds(catNms=[name])[0] for name in detector.classes]
    categories = json.loads(json.dumps(small.dataset['categories']))

    def whole(image: np.ndarray) -> Detections:
        return detector.detect([image])[0]

    def tiled(image: np.ndarray) -> Detections:
        return detect_in_tiles(detector, image, args.tile or max(size), args.overlap)

    rows = []
    for name, side, detect in (
        ('single images', 1, whole),
        ('stitched, whole', args.side, whole),
        ('stitched, tiles', args.side, tiled),
    ):
        stitched = stitch(images, side)
        truth = as_coco(stitched_annotations(small, ids, size, side), stitched, categories)
        height, width = stitched[0].shape[:2]
        aps = evaluate(truth, category_ids, stitched, detect)
        rows.append({'images': name, 'count': str(len(stitched)), 'pixels': f'{height} x {width}', **aps})
    print_table(rows)


if __name__ == '__main__':
    main()
