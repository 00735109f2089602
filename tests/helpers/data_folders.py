"""What was read from a data set."""

import os

import numpy as np


def objects(found):
    """The file name of each image with its size, and the class and box of each object."""
    names = {one['id']: one['name'] for one in found.content['categories']}
    return {
        os.path.basename(image['file_name']): (image['width'], image['height'])
        + tuple(
            (names[one['category_id']], *np.round(one['bbox'], 6).tolist(), one['area'])
            for one in found.content['annotations']
            if one['image_id'] == image['id']
        )
        for image in found.content['images']
    }
