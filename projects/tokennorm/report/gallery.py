"""Chooses the images of the report, and draws objects and detections on them."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tokennorm.datasets.coco.masks import draw_mask
from tokennorm.datasets.image_files import read_image
from tokennorm.evaluation.analysis import Evaluation, ImageErrors
from tokennorm.evaluation.suspects import Suspect, describe
from tokennorm.images.drawing import draw

LONG_SIDE = 640  # pixels of an embedded image
TEXT, LINE = 0.75, 4  # size of OpenCV's font, and pixels of a box: the page shows images at half their size
MANY, SMALL = 20, 0.5  # shapes from which on texts are smaller
# BGR, as in style.css: of objects 'found', 'missed' and 'crowd', and of detections 'right' and 'false'
_GREEN, _ORANGE, _RED, _WHITE = (94, 197, 34), (60, 146, 251), (94, 63, 244), (255, 255, 255)
COLORS = dict(found=_GREEN, right=_GREEN, missed=_ORANGE, false=_RED, crowd=_WHITE)


@dataclass(frozen=True)
class Shape:
    """An annotated object or a detection."""

    box: np.ndarray  # x, y, width, height in pixels of the image
    text: str  # class if there are several, and the score of a detection
    state: str  # a key of `COLORS`
    mask: np.ndarray | None = None  # (H, W) bool


@dataclass(frozen=True)
class Picture:
    """An image, or a region of it, twice: with its annotated objects, and with the detections that count."""

    annotations: str  # data URI
    detections: str
    caption: str
    file_name: str


class Gallery:
    """Makes pictures of an evaluated dataset. Images that cannot be read are left out."""

    def __init__(self, ground_truth: dict[str, Any], evaluation: Evaluation, image_dir: str | Path) -> None:
        self.images = {image['id']: image for image in ground_truth['images']}
        self.names = {category['id']: category['name'] for category in ground_truth['categories']}
        self.annotations: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for annotation in ground_truth['annotations']:
            self.annotations[annotation['image_id']].append(annotation)
        self.evaluation = evaluation
        self.image_dir = Path(image_dir)

    def worst_images(self, most: int = 8) -> list[Picture]:
        """Returns the images with the most errors at the report's threshold."""
        return self._pictures((e for e in self.evaluation.images if e.false + e.missed), most)

    def best_images(self, most: int = 6) -> list[Picture]:
        """Returns the images with the highest `quality`; of equal ones those with the most objects."""
        some = {e: self.quality(e) for e in self.evaluation.images if e.right}
        return self._pictures(sorted(some, key=lambda e: (-some[e], -e.right, e.image_id)), most)

    def quality(self, errors: ImageErrors) -> float:
        """Returns the mean of score x IoU with the object over right detections and errors, which count 0."""
        kept, kind = self.evaluation.kept, self.evaluation.iou_type
        size = self.images[errors.image_id]
        own = np.flatnonzero((kept.table[:, 0] == errors.image_id) & self.evaluation.right)
        objects = [one for one in self.annotations[errors.image_id] if one['id'] in self.evaluation.found]
        same = kept.table[own, 6][:, None] == [one['category_id'] for one in objects]
        overlaps = kept.overlaps(own, objects, size, kind) * same
        total = float(np.sum(kept.scores[own] * overlaps.max(axis=1, initial=0)))
        return total / (errors.right + errors.false + errors.missed)

    def suspects(self, most: int = 12) -> list[Picture]:
        """Returns the surroundings of the most suspicious annotations."""
        return list(islice(filter(None, map(self._suspect, self.evaluation.suspects)), most))

    def shapes(self, image_id: int, height: int, width: int) -> tuple[list[Shape], list[Shape]]:
        """Returns the annotated objects of an image of this size, and the detections in it."""
        found, kept, masks = self.evaluation.found, self.evaluation.kept, self.evaluation.iou_type == 'segm'
        objects, detections = [], []
        for one in self.annotations[image_id]:
            state = 'found' if one['id'] in found else 'crowd' if one.get('iscrowd') else 'missed'
            mask = draw_mask(one.get('segmentation'), height, width) if masks else None
            objects.append(Shape(np.array(one['bbox'], float), self._name(one['category_id']), state, mask))
        own = np.flatnonzero(kept.table[:, 0] == image_id)
        for i in own[np.argsort(kept.scores[own], kind='stable')]:  # the best ones on top
            *box, score, category_id = kept.table[i, 1:]
            mask = None if kept.masks is None else draw_mask(kept.masks[i], height, width)
            state = 'right' if self.evaluation.right[i] else 'false'
            detections.append(Shape(np.array(box), f'{self._name(category_id)} {score:.2f}'.strip(), state, mask))
        return objects, detections

    def _pictures(self, images: Iterable[ImageErrors], most: int) -> list[Picture]:
        pictures = (self._picture(e.image_id, f'{e.false} false, {e.missed} missed, {e.right} right') for e in images)
        return list(islice(filter(None, pictures), most))

    def _suspect(self, suspect: Suspect) -> Picture | None:
        around = (suspect.annotation or suspect.detection or {})['bbox']
        caption = describe(suspect, {i: self._name(i) for i in self.names})
        return self._picture(suspect.image_id, caption, np.array(around, float), suspect.detection)

    def _picture(
        self, image_id: int, caption: str, around: np.ndarray | None = None, found: Mapping[str, Any] | None = None
    ) -> Picture | None:
        """Returns the picture of an image, or of the surroundings of a box in it; None if it cannot be read.

        A detection `found` is drawn in any case, and others whose scores are above the threshold.
        """
        file_name = self.images[image_id]['file_name']
        pixels = read_image(self.image_dir / file_name)
        if pixels is None:
            return None
        height, width = pixels.shape[:2]
        view = (0, 0, width, height) if around is None else surroundings(around, width, height)
        objects, detections = self.shapes(image_id, height, width)
        if found is not None and found['score'] < self.evaluation.threshold:
            text = f'{self._name(found["category_id"])} {found["score"]:.2f}'.strip()
            detections.append(Shape(np.array(found['bbox'], float), text, 'false'))
        return Picture(as_uri(pixels, objects, view), as_uri(pixels, detections, view), caption, file_name)

    def _name(self, category_id: float) -> str:
        return self.names[int(category_id)] if len(self.names) > 1 else ''


def surroundings(box: np.ndarray, width: int, height: int, context: float = 2.5) -> tuple[int, int, int, int]:
    """Returns x, y, width, height of a region in an image that has a box in it, square unless the image is smaller."""
    limits = np.array([width, height])
    size = np.minimum(max(context * box[2:].max(), 96), limits).astype(int)
    low = np.clip(box[:2] + box[2:] / 2 - size / 2, 0, limits - size).astype(int)
    return int(low[0]), int(low[1]), int(size[0]), int(size[1])


def as_uri(pixels: np.ndarray, shapes: list[Shape], view: tuple[int, int, int, int]) -> str:
    """Returns a region of an image (H, W, 3) uint8 BGR with shapes drawn on it, as the data URI of a JPEG."""
    x, y, w, h = view
    scale = LONG_SIDE / max(w, h)
    size = max(1, round(w * scale)), max(1, round(h * scale))
    region = cv2.resize(
        pixels[y : y + h, x : x + w], size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    )
    boxes = np.array([[*one.box[:2], *(one.box[:2] + one.box[2:])] for one in shapes]).reshape(-1, 4) - [x, y, x, y]
    inside = [i for i, (left, top, right, bottom) in enumerate(boxes) if left < w and top < h and right > 0 < bottom]
    masks = [shapes[i].mask for i in inside]
    small = [m if m is None else cv2.resize(m[y : y + h, x : x + w].astype(np.uint8), size) > 0 for m in masks]
    texts = [shapes[i].text for i in inside]
    colors, text_size = [COLORS[shapes[i].state] for i in inside], TEXT if len(inside) <= MANY else SMALL
    drawn = draw(region, boxes[inside] * scale, texts, colors, small, text_size, LINE)
    data = cv2.imencode('.jpg', drawn, [cv2.IMWRITE_JPEG_QUALITY, 75])[1]
    return 'data:image/jpeg;base64,' + base64.b64encode(data.tobytes()).decode()
