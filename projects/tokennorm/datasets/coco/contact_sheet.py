"""A sheet of a dataset's images with their annotations on them."""

from collections import defaultdict
from typing import Any

import mmcv
import numpy as np

from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.inspection import mask_problem
from tokennorm.datasets.drawing import draw_annotations, palette, tile


def contact_sheet(split: CocoSplit, num_images: int, columns: int = 4) -> np.ndarray:
    """Images taken evenly from a split, with their annotations, (H, W, 3) uint8 BGR.

    Files and masks that cannot be read are passed over.
    """
    categories = split.content['categories']
    names = {category['id']: category['name'] for category in categories}
    colours = dict(zip(names, palette(len(names)), strict=True))
    annotations = defaultdict(list)
    for annotation in split.content['annotations']:
        annotations[annotation['image_id']].append(annotation)
    images = split.content['images']
    tiles = []
    for index in np.linspace(0, len(images) - 1, min(num_images, len(images)), dtype=int):
        info = images[index]
        image = _read(split, info['file_name'])
        if image is not None:
            drawable = [_drawable(annotation, info) for annotation in annotations[info['id']]]
            tiles.append(draw_annotations(image, drawable, names, colours))
    if not tiles:
        raise ValueError(f'{split.name}: no image in {split.image_dir} can be drawn')
    return tile(tiles, columns=min(columns, len(tiles)))


def _drawable(annotation: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    problem, _ = mask_problem(annotation.get('segmentation'), [info['height'], info['width']])
    return annotation | dict(segmentation=None) if problem else annotation


def _read(split: CocoSplit, name: str) -> np.ndarray | None:
    try:
        return mmcv.imread(str(split.image_dir / name))
    except (OSError, ValueError):
        return None
