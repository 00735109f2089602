"""Chooses the images of the report, and the shapes that the page draws on them."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
from tokennorm.images.drawing import Text, cut_middle

LONG_SIDE = 640  # pixels of an embedded image, which are the units of the shapes on it
FONT, FONT_OF_REGION = 26, 40  # units; the page shows images at less than half their size
OPENCV = 0.036  # size of OpenCV's font that is as wide as the page's at 1 unit
MANY, SMALL = 6, 24  # with more shapes only errors have a text, and smaller shapes have none
ERRORS = 'missed', 'false'


@dataclass(frozen=True)
class Shape:
    """An annotated object or a detection. The page colors it by its state."""

    box: np.ndarray  # x, y, width, height in pixels of the image
    name: str  # class if there are several
    state: str  # 'found', 'missed' or 'crowd'; of a detection 'right' or 'false'
    mask: np.ndarray | None = None  # (H, W) bool
    score: float | None = None  # of a detection, or of that which found the object
    is_shown: bool = True  # at the report's threshold; the page has those with a lower score, too


@dataclass(frozen=True)
class Drawn:
    """A shape in units of an embedded image."""

    shape: Shape
    box: list[int]  # x, y, width, height
    text: str  # with its middle cut out
    title: str
    at: tuple[int, int, bool]  # x and y of the text, and whether it ends there
    is_quiet: bool  # its text is on the enlarged image only
    outline: str  # of its mask, data of an SVG path


@dataclass(frozen=True)
class Picture:
    """An image, or a region of it, with its annotated objects, and with the detections that count."""

    uri: str  # JPEG
    size: tuple[int, int]  # width, height
    annotations: list[Drawn]
    detections: list[Drawn]
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
        kept, kind = self.evaluation.drawn, self.evaluation.iou_type
        size = self.images[errors.image_id]
        right = self.evaluation.right & (kept.scores >= self.evaluation.threshold)
        own = np.flatnonzero((kept.table[:, 0] == errors.image_id) & right)
        objects = [one for one in self.annotations[errors.image_id] if self._is_found(one['id'])]
        same = kept.table[own, 6][:, None] == [one['category_id'] for one in objects]
        overlaps = kept.overlaps(own, objects, size, kind) * same
        total = float(np.sum(kept.scores[own] * overlaps.max(axis=1, initial=0)))
        return total / (errors.right + errors.false + errors.missed)

    def suspects(self, most: int = 12) -> list[Picture]:
        """Returns the surroundings of the most suspicious annotations."""
        return list(islice(filter(None, map(self._suspect, self.evaluation.suspects)), most))

    def shapes(self, image_id: int, height: int, width: int) -> tuple[list[Shape], list[Shape]]:
        """Returns the annotated objects of an image of this size, and the detections in it."""
        drawn, masks, threshold = self.evaluation.drawn, self.evaluation.iou_type == 'segm', self.evaluation.threshold
        objects, detections = [], []
        for one in self.annotations[image_id]:
            state = 'found' if self._is_found(one['id']) else 'crowd' if one.get('iscrowd') else 'missed'
            mask = draw_mask(one.get('segmentation'), height, width) if masks else None
            score = self.evaluation.found.get(one['id'])
            objects.append(Shape(np.array(one['bbox'], float), self._name(one['category_id']), state, mask, score))
        own = np.flatnonzero(drawn.table[:, 0] == image_id)
        for i in own[np.argsort(drawn.scores[own], kind='stable')]:  # the best ones on top
            *box, score, category_id = drawn.table[i, 1:]
            mask = None if drawn.masks is None else draw_mask(drawn.masks[i], height, width)
            state = 'right' if self.evaluation.right[i] else 'false'
            shape = Shape(np.array(box), self._name(category_id), state, mask, float(score), score >= threshold)
            detections.append(shape)
        return objects, detections

    def _is_found(self, annotation_id: int) -> bool:
        return self.evaluation.found.get(annotation_id, -1.0) >= self.evaluation.threshold

    def _pictures(self, images: Iterable[ImageErrors], most: int) -> list[Picture]:
        pictures = (self._picture(e.image_id, f'{e.false} false, {e.missed} missed, {e.right} right') for e in images)
        return list(islice(filter(None, pictures), most))

    def _suspect(self, suspect: Suspect) -> Picture | None:
        around = (suspect.annotation or suspect.detection or {})['bbox']
        caption = describe(suspect, {i: self._name(i) for i in self.names})
        return self._picture(suspect.image_id, caption, around=np.array(around, float))

    def _picture(self, image_id: int, caption: str, around: np.ndarray | None = None) -> Picture | None:
        """Returns the picture of an image, or of the surroundings of a box in it; None if it cannot be read."""
        file_name = self.images[image_id]['file_name']
        pixels = read_image(self.image_dir / file_name)
        if pixels is None:
            return None
        height, width = pixels.shape[:2]
        view = (0, 0, width, height) if around is None else surroundings(around, width, height)
        uri, size = as_uri(pixels, view)
        font = FONT if around is None else FONT_OF_REGION
        shapes = self.shapes(image_id, height, width)
        objects, detections = (place(some, view, size, font, around) for some in shapes)
        return Picture(uri, size, objects, detections, caption, file_name)

    def _name(self, category_id: float) -> str:
        return self.names[int(category_id)] if len(self.names) > 1 else ''


def surroundings(box: np.ndarray, width: int, height: int) -> tuple[int, int, int, int]:
    """Returns x, y, width, height of a region in an image that has a box in it, square unless the image is smaller."""
    box = np.nan_to_num(np.clip(box, -1e9, 1e9))  # of a detector that diverged
    limits = np.array([width, height])
    size = np.minimum(max(2.5 * box[2:].max(), 96), limits).astype(int)
    low = np.clip(box[:2] + box[2:] / 2 - size / 2, 0, limits - size).astype(int)
    return int(low[0]), int(low[1]), int(size[0]), int(size[1])


def as_uri(pixels: np.ndarray, view: tuple[int, int, int, int]) -> tuple[str, tuple[int, int]]:
    """Returns a region of an image (H, W, 3) uint8 BGR as the data URI of a JPEG, and its width and height there."""
    x, y, w, h = view
    scale = LONG_SIDE / max(w, h)
    size = max(1, round(w * scale)), max(1, round(h * scale))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    region = cv2.resize(pixels[y : y + h, x : x + w], size, interpolation=method)
    data = cv2.imencode('.jpg', region, [cv2.IMWRITE_JPEG_QUALITY, 75])[1]
    return 'data:image/jpeg;base64,' + base64.b64encode(data.tobytes()).decode(), size


def place(
    shapes: list[Shape],
    view: tuple[int, int, int, int],
    size: tuple[int, int],
    font: int = FONT,
    around: np.ndarray | None = None,
) -> list[Drawn]:
    """Returns the shapes in a region x, y, width, height of an image, in units of the embedded image of this size.

    Texts of errors come first; one that would cover another, and those of other shapes if there are many, are quiet.
    Of the surroundings of a box, the shapes most like it come first, and those unlike it are quiet.
    """
    x, y, w, h = view
    corners = np.array([[*one.box[:2], *(one.box[:2] + one.box[2:])] for one in shapes]).reshape(-1, 4) - [x, y, x, y]
    scaled = (corners * np.tile([size[0] / w, size[1] / h], 2)).round().astype(int).tolist()
    inside = [(one, box) for one, box in zip(shapes, scaled, strict=True) if _meet(box, (0, 0, *size))]
    many = sum(one.is_shown for one, _ in inside) > MANY
    unlike = [0.0] * len(inside)
    if around is not None:
        unlike = [float(np.abs(one.box - around).sum() / max(around[2:].sum(), 1)) for one, _ in inside]
    drawn: dict[int, Drawn] = {}
    taken: list[tuple[float, ...]] = []  # left, top, right and bottom of the texts
    for i in sorted(range(len(inside)), key=lambda i: (unlike[i], inside[i][0].state not in ERRORS)):
        one, (left, top, right, bottom) = inside[i]
        score = f' {one.score:.2f}' if one.state in ('right', 'false') else ''
        text = (cut_middle(one.name, LONG_SIDE // 3, OPENCV * font, 2) + score).strip()
        wide = min(Text(text, OPENCV * font, 2).length, size[0])
        ends = left + wide > size[0]  # beyond the image: it ends where its box does
        x0 = max(min(right, size[0]) - wide, 0) if ends else max(left, 0)
        places = [(x0, low - font, x0 + wide, low) for low in (top - 4, top + font, bottom + font, bottom - 4)]
        free = [at for at in places if at[1] >= 0 and at[3] <= size[1] and not any(_meet(at, one) for one in taken)]
        is_small = min(right - left, bottom - top) < SMALL
        is_other = unlike[i] > 1 if around is not None else many and one.state not in ERRORS
        is_quiet = is_small or not free or not one.is_shown or is_other
        taken += [] if is_quiet else free[:1]
        start, _, end, low = places[not is_small] if is_quiet else free[0]  # above a small shape, else inside
        part = None if one.mask is None else one.mask[y : y + h, x : x + w].astype(np.uint8)
        outline = '' if part is None else outline_of(cv2.resize(part, size))
        box = [left, top, right - left, bottom - top]
        place, title = (round(end if ends else start), round(low - font / 5), ends), (one.name + score).strip()
        drawn[i] = Drawn(one, box, text, title, place, is_quiet, outline)
    return [drawn[i] for i in range(len(inside))]


def _meet(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two boxes of left, top, right and bottom share an area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def outline_of(mask: np.ndarray) -> str:
    """Returns the border of a mask (H, W) uint8 as data of an SVG path, with its holes for the rule evenodd."""
    borders, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    parts = (cv2.approxPolyDP(border, 0.75, closed=True) for border in borders)
    return ''.join(f'M{" ".join(map(str, part.reshape(-1).tolist()))}Z' for part in parts)
