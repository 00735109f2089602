"""Draws docs/raccoons.jpg: the first eight val images of a dataset with a detector's boxes, and prints what is right.

python docs/_figures/raccoons.py RUN DATA
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from torchvision.ops import box_iou

from tokennorm import Detector
from tokennorm.datasets.contact_sheet import tile
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.image_files import read_image
from tokennorm.images.drawing import color_of, draw

OUT = Path(__file__).resolve().parents[1] / 'raccoons.jpg'
SHOWN, HEIGHT = 8, 210  # pictures, pixels


def count_right(boxes: np.ndarray, objects: np.ndarray) -> int:
    """The number of boxes, (N, 4) by descending score, that find an object of (M, 4) at an IoU of 0.5."""
    overlaps = box_iou(torch.tensor(boxes), torch.tensor(objects))
    right = 0
    for row in overlaps:
        if len(row) and row.max() >= 0.5:
            overlaps[:, row.argmax()] = 0
            right += 1
    return right


def main(run: str, data: str) -> None:
    split = find_splits(data, ('val',))['val']
    detector = Detector(run, device='cpu')
    threshold = detector.thresholds('best')
    pictures, counts = [], []
    for image in split.content['images']:
        objects = [one['bbox'] for one in split.content['annotations'] if one['image_id'] == image['id']]
        objects = np.array(objects, np.float32).reshape(-1, 4)
        objects[:, 2:] += objects[:, :2]
        pixels = read_image(split.image_dir / image['file_name'])
        found = detector(pixels, threshold)
        counts.append((count_right(found.boxes, objects), len(objects), len(found)))
        if len(pictures) < SHOWN:
            scale = HEIGHT / pixels.shape[0]
            pixels = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            texts = [f'{score:.2f}' for score in found.scores]
            pictures.append(draw(pixels, found.boxes * scale, texts, [color_of(i) for i in found.labels]))
    cv2.imwrite(str(OUT), tile(pictures, 4), [cv2.IMWRITE_JPEG_QUALITY, 85])
    for name, part in (('shown', counts[:SHOWN]), ('all', counts)):
        right, objects, boxes = np.sum(part, 0)
        print(f'{name}: {right} of {objects} objects are found; {boxes - right} of {boxes} boxes are wrong')
    print('lowest scores', threshold)


if __name__ == '__main__':
    main(*sys.argv[1:])
