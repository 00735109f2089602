"""Draws annotations, and tiles images into contact sheets."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokennorm.datasets.coco.masks import draw_mask
from tokennorm.datasets.image_files import read_image
from tokennorm.datasets.splits import CocoSplit
from tokennorm.images.drawing import Color, Text, color_of, draw_resized

_LONG_SIDE = 480  # pixels of a drawn image
_WHITE = (255, 255, 255)


def palette(count: int) -> list[Color]:
    """Returns `count` bright RGB colors."""
    return [color_of(i)[::-1] for i in range(count)]


def draw_annotations(
    image: np.ndarray, annotations: Sequence[dict[str, Any]], names: dict[Any, str], caption: str = ''
) -> np.ndarray:
    """Draws boxes, masks and class names of COCO annotations on a resized copy, (H', W', 3) uint8 BGR.

    Crowds are white. Names are left out if there is only one class. Masks that cannot be read are left out. A
    legend of many objects and the caption are below the image.
    """
    colors_of = {category_id: color_of(label) for label, category_id in enumerate(names)}
    boxes = np.array([one['bbox'] for one in annotations], float).reshape(-1, 4)
    corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    shown, colors, masks = [], [], []
    for one in annotations:
        crowd, category = bool(one.get('iscrowd')), one['category_id']
        colors.append(_WHITE if crowd else colors_of.get(category, _WHITE))
        name = names.get(category, '?') if len(names) > 1 else ''
        shown.append(f'{name} (crowd)' if name and crowd else name)
        masks.append(draw_mask(one.get('segmentation'), *image.shape[:2]))
    drawn = draw_resized(image, _LONG_SIDE, corners, shown, colors, masks)
    framed = np.pad(drawn, ((0, 18), (0, 0), (0, 0)), constant_values=255)
    Text(caption[-60:], 0.4, 1).draw(framed, 2, len(drawn) + 13, (0, 0, 0))
    return framed


def tile(images: Sequence[np.ndarray], columns: int, gap: int = 6) -> np.ndarray:
    """Tiles images (H_i, W_i, 3) in rows, each on a white tile of the size of the largest."""
    height, width = (max(image.shape[axis] for image in images) + gap for axis in (0, 1))
    rows = -(-len(images) // columns)
    sheet = np.full((rows * height, columns * width, 3), 255, np.uint8)
    for i, image in enumerate(images):
        top, left = i // columns * height, i % columns * width
        sheet[top : top + image.shape[0], left : left + image.shape[1]] = image
    return sheet


def contact_sheet(split: CocoSplit, num_images: int) -> np.ndarray:
    """Draws images taken evenly from a split, with their annotations and file names: (H, W, 3) uint8 BGR.

    Files that cannot be read are left out.
    """
    names = {category['id']: category['name'] for category in split.content['categories']}
    annotations: Mapping[Any, list[dict[str, Any]]] = defaultdict(list)
    for annotation in split.content['annotations']:
        annotations[annotation['image_id']].append(annotation)
    images = split.content['images']
    tiles = []
    for index in np.linspace(0, len(images) - 1, min(num_images, len(images)), dtype=int):
        info = images[index]
        image = read_image(split.image_dir / info['file_name'])
        if image is not None:
            tiles.append(draw_annotations(image, annotations[info['id']], names, info['file_name']))
    if not tiles:
        raise ValueError(f'{split.name}: no image in {split.image_dir} can be drawn')
    return tile(tiles, columns=min(4, len(tiles)))
