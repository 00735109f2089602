"""Contact sheet of a dataset's images with their annotations."""

from collections import defaultdict

import numpy as np

from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.masks import mask_problem
from tokennorm.datasets.drawing import draw_annotations, palette, tile
from tokennorm.datasets.image_files import read_image


def contact_sheet(split: CocoSplit, num_images: int, columns: int = 4) -> np.ndarray:
    """Draws images taken evenly from a split, with their annotations: (H, W, 3) uint8 BGR.

    Files and masks that cannot be read are left out.
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
        image = read_image(split.image_dir / info['file_name'])
        if image is not None:
            size = [info['height'], info['width']]
            drawable = [
                one | dict(segmentation=None) if mask_problem(one.get('segmentation'), size)[0] else one
                for one in annotations[info['id']]
            ]
            tiles.append(draw_annotations(image, drawable, names, colours))
    if not tiles:
        raise ValueError(f'{split.name}: no image in {split.image_dir} can be drawn')
    return tile(tiles, columns=min(columns, len(tiles)))
