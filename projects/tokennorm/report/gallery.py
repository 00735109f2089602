"""Chooses the images of the report and describes what is drawn over them."""

import base64
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tokennorm.datasets.drawing import outlines
from tokennorm.datasets.image_files import read_image
from tokennorm.evaluation.analysis import Evaluation

LONG_SIDE = 640  # pixels of an embedded image
JPEG_QUALITY = 80


@dataclass(frozen=True)
class Shape:
    """A box, or the outline of a mask, in pixels of the original image."""

    box: tuple[float, float, float, float]  # x, y, width, height
    text: str  # class if there are several, and the score of a detection
    state: str  # 'found' or 'missed' for an object, 'right' or 'false' for a detection, 'crowd'
    outline: str = ''  # path data of the mask's outline, or ''


@dataclass(frozen=True)
class Picture:
    """An image region with the objects and the detections in it."""

    uri: str  # the region as a data URI
    view: tuple[float, float, float, float]  # x, y, width, height of the region in pixels of the original image
    caption: str  # what there is to see
    file_name: str  # the image
    objects: list[Shape]  # annotated objects
    detections: list[Shape]  # detections above the report's threshold


class Gallery:
    """Makes pictures of an evaluated dataset."""

    def __init__(self, ground_truth: dict[str, Any], evaluation: Evaluation, image_dir: str | Path) -> None:
        self.images = {image['id']: image for image in ground_truth['images']}
        self.names = {category['id']: category['name'] for category in ground_truth['categories']}
        self.annotations: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for annotation in ground_truth['annotations']:
            self.annotations[annotation['image_id']].append(annotation)
        self.evaluation = evaluation
        self.image_dir = Path(image_dir)

    def worst_images(self, most: int = 8) -> list[Picture]:
        """Returns the images with the most errors at the report's threshold; images without errors are left out."""
        wrong = (errors for errors in self.evaluation.images if errors.false + errors.missed)
        pictures = (self.picture(e.image_id, f'{e.false} false, {e.missed} missed, {e.right} right') for e in wrong)
        return list(islice(filter(None, pictures), most))

    def label_errors(self, most: int = 12) -> list[Picture]:
        """Returns the surroundings of the detections that most likely show an error in the annotations."""
        return list(islice(filter(None, map(self._label_error, self.evaluation.label_errors)), most))

    def _label_error(self, error: dict[str, Any]) -> Picture | None:
        annotated = f'annotated as {error["gt_category"]}' if error['type'] == 'wrong_label' else 'no annotation'
        caption = f'{annotated}, detected as {error["dt_category"]} with score {error["dt_score"]:.2f}'
        return self.picture(error['image_id'], caption, around=self.evaluation.kept.table[error['dt_id'] - 1, 1:5])

    def picture(self, image_id: int, caption: str, around: np.ndarray | None = None) -> Picture | None:
        """Returns the picture of an image, or of the surroundings of a box in it; None if it cannot be read."""
        entry = self.images[image_id]
        pixels = read_image(self.image_dir / entry['file_name'])
        if pixels is None:
            return None
        height, width = pixels.shape[:2]
        view = (0, 0, width, height) if around is None else surroundings(around, width, height)
        x, y, w, h = view
        objects = (self._object(annotation, height, width) for annotation in self.annotations[image_id])
        rows = np.flatnonzero(self.evaluation.kept.table[:, 0] == image_id)
        return Picture(
            uri=encode(pixels[y : y + h, x : x + w]),
            view=view,
            caption=caption,
            file_name=entry['file_name'],
            objects=[shape for shape in objects if overlaps(shape.box, view)],
            detections=[shape for shape in map(self._detection, rows) if overlaps(shape.box, view)],
        )

    def _object(self, annotation: dict[str, Any], height: int, width: int) -> Shape:
        state = 'crowd' if annotation.get('iscrowd') else 'missed'
        state = 'found' if annotation['id'] in self.evaluation.found else state
        masks = self.evaluation.iou_type == 'segm'
        path = outline(annotation.get('segmentation'), height, width) if masks else ''
        return Shape(tuple(annotation['bbox']), self._name(annotation['category_id']), state, path)

    def _detection(self, i: int) -> Shape:
        row = self.evaluation.kept.table[i]
        state = 'right' if self.evaluation.right[i] else 'false'
        masks = self.evaluation.kept.masks
        path = '' if masks is None else outline(masks[i], *masks[i]['size'])
        text = f'{self._name(int(row[6]))} {row[5]:.2f}'.strip()
        return Shape(tuple(row[1:5].tolist()), text, state, path)

    def _name(self, category_id: int) -> str:
        return self.names[category_id] if len(self.names) > 1 else ''


def surroundings(box: np.ndarray, width: int, height: int, context: float = 2.5) -> tuple[int, int, int, int]:
    """Returns x, y, width, height of a region in an image that has a box in it, square unless the image is smaller."""
    limits = np.array([width, height])
    size = np.minimum(max(context * box[2:].max(), 96), limits).astype(int)
    low = np.clip(box[:2] + box[2:] / 2 - size / 2, 0, limits - size).astype(int)
    return int(low[0]), int(low[1]), int(size[0]), int(size[1])


def overlaps(box: tuple[float, ...], view: tuple[float, ...]) -> bool:
    """Returns whether two boxes (x, y, width, height) share an area."""
    return all(box[i] < view[i] + view[i + 2] and view[i] < box[i] + box[i + 2] for i in (0, 1))


def encode(pixels: np.ndarray) -> str:
    """Returns the data URI of an image (H, W, 3) uint8 BGR as JPEG, its long side at most `LONG_SIDE` pixels."""
    scale = LONG_SIDE / max(pixels.shape[:2])
    if scale < 1:
        pixels = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    data = cv2.imencode('.jpg', pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return 'data:image/jpeg;base64,' + base64.b64encode(data.tobytes()).decode()


def outline(segmentation: Any, height: int, width: int) -> str:
    """Returns SVG path data of a COCO segmentation: polygons, or run lengths of an image of this size."""
    shift = 0 if isinstance(segmentation, list) else 0.5  # to the centers of pixels
    contours = [points[:, 0] + shift for points in outlines(segmentation, height, width)]
    return ''.join('M' + 'L'.join(f'{x:.4g},{y:.4g}' for x, y in points) + 'Z' for points in contours)
