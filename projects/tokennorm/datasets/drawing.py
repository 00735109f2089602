"""Draws annotations, and tiles images into contact sheets."""

import colorsys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from pycocotools import mask as run_lengths

from tokennorm.datasets.coco.inspection import mask_problem
from tokennorm.datasets.image_files import read_image
from tokennorm.datasets.splits import CocoSplit

Color = tuple[int, int, int]
_LONG_SIDE = 480  # pixels of a drawn image


def palette(count: int) -> list[Color]:
    """Returns `count` bright RGB colors. Hues step by the golden ratio, so that neighbors differ strongly."""
    hues = [(0.02 + i * 0.61803) % 1 for i in range(count)]
    return [tuple(round(255 * v) for v in colorsys.hsv_to_rgb(hue, 0.6, 1.0)) for hue in hues]


def draw_annotations(
    image: np.ndarray, annotations: Sequence[dict[str, Any]], names: dict[Any, str], colors: dict[Any, Color]
) -> np.ndarray:
    """Draws boxes, mask outlines and class names of COCO annotations on a resized copy, (H', W', 3) uint8 BGR.

    Crowds are white. Names are left out if there is only one class, or too many objects to read them. Masks that cannot
    be read are left out.
    """
    height, width = image.shape[:2]
    scale = _LONG_SIDE / max(height, width)
    interpolation = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    size = max(1, round(width * scale)), max(1, round(height * scale))
    image = cv2.resize(image, size, interpolation=interpolation)
    named = len(names) > 1 and len(annotations) <= 60
    for annotation in annotations:
        crowd = bool(annotation.get('iscrowd'))
        color = (255, 255, 255) if crowd else colors.get(annotation['category_id'], (255, 255, 255))[::-1]
        mask = annotation.get('segmentation')
        for outline in [] if mask_problem(mask, [height, width]) else outlines(mask, height, width):
            cv2.drawContours(image, [np.round(outline * scale).astype(np.int32)], -1, color, 1, cv2.LINE_AA)
        x, y, w, h = annotation['bbox']
        corners = np.clip([x, y, x + w, y + h], -max(height, width), 2 * max(height, width))  # cv2 takes 32 bits
        x, y, right, bottom = np.round(corners * scale).astype(int).tolist()
        cv2.rectangle(image, (x, y), (right, bottom), color, 1)
        if named:
            text = names.get(annotation['category_id'], '?') + (' (crowd)' if crowd else '')
            corner = (max(x, 0) + 2, max(y - 3, 10))
            for shade, thickness in (((0, 0, 0), 3), (color, 1)):
                cv2.putText(image, text, corner, cv2.FONT_HERSHEY_SIMPLEX, 0.4, shade, thickness, cv2.LINE_AA)
    return image


def outlines(segmentation: Any, height: int, width: int) -> list[np.ndarray]:
    """Returns contours (N, 1, 2) of a COCO segmentation: polygons, or run lengths, compressed or not."""
    if not segmentation:
        return []
    if isinstance(segmentation, list):
        return [np.reshape(polygon, (-1, 1, 2)) for polygon in segmentation if len(polygon) >= 6]
    if isinstance(segmentation['counts'], list):
        segmentation = run_lengths.frPyObjects(segmentation, height, width)
    mask = np.ascontiguousarray(run_lengths.decode(segmentation))
    return list(cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)[0])


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
    """Draws images taken evenly from a split, with their annotations: (H, W, 3) uint8 BGR.

    Files that cannot be read are left out.
    """
    names = {category['id']: category['name'] for category in split.content['categories']}
    colors = dict(zip(names, palette(len(names)), strict=True))
    annotations = defaultdict(list)
    for annotation in split.content['annotations']:
        annotations[annotation['image_id']].append(annotation)
    images = split.content['images']
    tiles = []
    for index in np.linspace(0, len(images) - 1, min(num_images, len(images)), dtype=int):
        info = images[index]
        image = read_image(split.image_dir / info['file_name'])
        if image is not None:
            tiles.append(draw_annotations(image, annotations[info['id']], names, colors))
    if not tiles:
        raise ValueError(f'{split.name}: no image in {split.image_dir} can be drawn')
    return tile(tiles, columns=min(4, len(tiles)))
