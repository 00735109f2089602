"""Contents of COCO files and images of any size."""

import json

import numpy as np
from pycocotools import mask as coco_masks


def edit(root, split, change):
    """Applies `change` to the content of an annotation file."""
    path = root / 'annotations' / f'{split}.json'
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return content


HEIGHT, WIDTH = 24, 32


def sound_content(num_images):
    """Boxes, polygons, run lengths of both kinds, a crowd, and an image without objects."""
    bitmap = np.zeros((HEIGHT, WIDTH), np.uint8, order='F')
    bitmap[4:9, 6:20] = 1
    packed = coco_masks.encode(bitmap)['counts'].decode()
    masks = [
        [[2, 2, 12, 2, 12, 9, 2, 9]],
        [[2, 2, 12, 2, 12, 9], [3, 12, 9, 12, 9, 20, 4, 20]],
        dict(size=[HEIGHT, WIDTH], counts=packed),
        dict(size=[HEIGHT, WIDTH], counts=[100, 40, 60, 500, 68]),
    ]
    annotations = [
        dict(id=i + 1, image_id=i % (num_images - 1) + 1, category_id=(3, 7)[i % 2], bbox=[2 + i, 2.5, 9, 8], area=72.0,
             iscrowd=int(i == 3), segmentation=masks[i % 4])
        for i in range(8)
    ]  # fmt: skip
    images = [dict(id=i + 1, file_name=f'{i}.png', height=HEIGHT, width=WIDTH) for i in range(num_images)]
    return dict(images=images, annotations=annotations, categories=[dict(id=3, name='cat'), dict(id=7, name='dog')])
