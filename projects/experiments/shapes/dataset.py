"""Shapes: a small detection and instance segmentation dataset in COCO format, generated from a seed.

An image is planned before it is painted. `plan` places objects from back to front and accepts one only if afterwards
*every* object still shows at least `MIN_VISIBLE_FRACTION` of its area and `MIN_VISIBLE_PIXELS`. The image border hides
objects as an occluder does. Exactly the planned objects are painted and annotated: no object lacks an annotation, and
no annotation lacks a visible object.

Every 20th image has no object, the others have 1 to 8. The hue of an object leans to that of its class without deciding
it; its texture is free. Its size, the square root of its unoccluded area, is log-uniform between 20 px and 104 px (at
most 0.55 of the image).

Segmentations are compressed RLE of the visible pixels. An occluded object may fall into several pieces or enclose
another, which COCO's polygons cannot say exactly; with RLE `area` and `bbox` are those of the mask to the pixel.

Image `index` of a split depends only on (seed, split, index), not on the number of images. Legend: S image side in px,
coordinates (x, y) in px, images (S, S, 3) uint8 in cv2's BGR order.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from pycocotools import mask as rle

from experiments.shapes.painting import Shape, paint

CLASSES = ('disk', 'square', 'triangle', 'star')
SPLITS = ('train', 'val')
FORMAT_VERSION = 1
MIN_VISIBLE_FRACTION = 0.35
MIN_VISIBLE_PIXELS = 40
MAX_OBJECTS = 8
EMPTY_EVERY = 20
MIN_SIZE, MAX_SIZE, MAX_SHARE = 20.0, 104.0, 0.55


@dataclass(frozen=True)
class Settings:
    """Everything that the content of a dataset depends on, as written to its `dataset.json`."""

    num_train: int
    num_val: int
    image_size: int
    seed: int
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if min(self.num_train, self.num_val) < 1:
            raise ValueError(f'a split needs at least one image, got {self.num_train} train and {self.num_val} val')
        if self.image_size < 48:
            raise ValueError(f'image_size must be at least 48 px, got {self.image_size}')
        if self.seed < 0:
            raise ValueError(f'seed must not be negative, got {self.seed}')


# ---- plan: which objects, where, and what is seen of them ----


def outline(label: int) -> np.ndarray:
    """Returns the corners (P, 2) of a class's shape with area 1 around the origin."""
    corners = (64, 4, 3, 10)[label]
    angle = 2 * np.pi * np.arange(corners) / corners
    radius = np.where(np.arange(corners) % 2, 0.45, 1.0) if CLASSES[label] == 'star' else np.ones(corners)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points / np.sqrt(cv2.contourArea(points.astype(np.float32)))


def random_shape(
    rng: np.random.Generator, image_size: int, label: int | None = None, sizes: Sequence[float] | None = None
) -> Shape:
    """Returns a shape of random class (or `label`), size (within `sizes`, in pixels), aspect and rotation.

    Its center is in the image; the border may cut it.
    """
    label = int(rng.integers(len(CLASSES))) if label is None else label
    smallest, largest = sizes or (MIN_SIZE, min(MAX_SIZE, MAX_SHARE * image_size))
    size = float(np.exp(rng.uniform(np.log(smallest), np.log(largest))))
    stretch = np.exp(rng.uniform(-0.12, 0.12))
    turn = rng.uniform(0, 2 * np.pi)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    center = rng.uniform(0, image_size, 2)
    points = size * (outline(label) * [stretch, 1 / stretch]) @ rotation.T + center

    scale = 4  # coverage is the share of 4 x 4 samples
    low = np.floor(points.min(0)).astype(int) - 1
    width, height = np.ceil(points.max(0)).astype(int) + 1 - low
    fine = np.zeros((height * scale, width * scale), np.uint8)
    cv2.fillPoly(fine, [np.round((points - low) * scale - 0.5).astype(np.int32)], 255)
    patch = cv2.resize(fine, (int(width), int(height)), interpolation=cv2.INTER_AREA).astype(np.float32) / 255

    (x0, y0), (x1, y1) = np.clip(low, 0, image_size), np.clip(low + [width, height], 0, image_size)
    alpha = np.zeros((image_size, image_size), np.float32)
    alpha[y0:y1, x0:x1] = patch[y0 - low[1] : y1 - low[1], x0 - low[0] : x1 - low[0]]
    return Shape(label, size, alpha, float((patch >= 0.5).sum()))


def visible_masks(shapes: Sequence[Shape]) -> list[np.ndarray]:
    """Returns the visible masks, (S, S) bool, of shapes given from back to front. They are disjoint."""
    masks, covered = [], False
    for shape in reversed(shapes):
        masks.append(shape.mask & ~covered)
        covered = covered | shape.mask
    return masks[::-1]


def all_visible(shapes: Sequence[Shape]) -> bool:
    """Returns whether every shape, given from back to front, is visible enough."""
    seen = [mask.sum() for mask in visible_masks(shapes)]
    return all(
        pixels >= max(MIN_VISIBLE_PIXELS, MIN_VISIBLE_FRACTION * shape.full_area)
        for pixels, shape in zip(seen, shapes, strict=True)
    )


def plan(rng: np.random.Generator, num_objects: int, image_size: int) -> list[Shape]:
    """Returns up to `num_objects` shapes from back to front, all visible enough; fewer if no space is found."""
    shapes = []
    for _ in range(num_objects):
        for _ in range(20):
            candidate = [*shapes, random_shape(rng, image_size)]
            if all_visible(candidate):
                shapes = candidate
                break
    return shapes


# ---- write ----


def make_image(settings: Settings, split: str, index: int) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """Returns one image (S, S, 3) uint8 and its list of (label, visible mask (S, S) bool)."""
    rng = np.random.default_rng([settings.seed, SPLITS.index(split), index])
    empty = index % EMPTY_EVERY == EMPTY_EVERY // 2
    shapes = [] if empty else plan(rng, int(rng.integers(1, MAX_OBJECTS + 1)), settings.image_size)
    image = paint(rng, shapes, settings.image_size)
    return image, [(shape.label, mask) for shape, mask in zip(shapes, visible_masks(shapes), strict=True)]


def annotation(label: int, mask: np.ndarray) -> dict[str, Any]:
    """Returns COCO's fields of one object, without ids."""
    segmentation = rle.encode(np.asfortranarray(mask, np.uint8))
    bbox, area = rle.toBbox(segmentation).tolist(), int(rle.area(segmentation))
    segmentation['counts'] = segmentation['counts'].decode('ascii')
    return dict(category_id=label + 1, bbox=bbox, area=area, iscrowd=0, segmentation=segmentation)


def write_split(root: Path, settings: Settings, split: str) -> None:
    """Writes `root`/images/`split`/*.jpg and `root`/annotations/`split`.json."""
    folder = root / 'images' / split
    folder.mkdir(parents=True)
    images, objects = [], []
    for number in range(1, getattr(settings, f'num_{split}') + 1):
        image, found = make_image(settings, split, number - 1)
        path = folder / f'{number:06d}.jpg'
        if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 95]):
            raise OSError(f'could not write {path}')
        images.append(dict(id=number, file_name=path.name, width=settings.image_size, height=settings.image_size))
        objects += [dict(image_id=number, **annotation(label, mask)) for label, mask in found]
    content = dict(
        info=dict(description='TokenNorm shapes, a generated dataset', version=str(settings.format_version)),
        licenses=[],
        images=images,
        categories=[dict(id=number, name=name, supercategory='shape') for number, name in enumerate(CLASSES, 1)],
        annotations=[dict(id=number, **fields) for number, fields in enumerate(objects, 1)],
    )
    (root / 'annotations').mkdir(exist_ok=True)
    (root / 'annotations' / f'{split}.json').write_text(json.dumps(content) + '\n', encoding='ascii')


def make_once(out: Path, settings: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Generates the dataset of `settings` in `out`, unless it exists, in one step: `write` fills a new folder."""
    side = settings['image_size']
    images = f'{settings["num_train"]} + {settings["num_val"]} images of {side} x {side} px'
    note = out / 'dataset.json'
    if note.is_file() and json.loads(note.read_text(encoding='ascii')) == settings:
        print(f'{out}: {images} of these settings exist already, nothing to do', flush=True)
        return
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise FileExistsError(f'{out} exists, and is not a dataset of these settings: remove it or name another folder')
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{out.name}.', dir=out.parent) as scratch:
        fresh = Path(scratch) / 'fresh'
        write(fresh)
        (fresh / 'dataset.json').write_text(json.dumps(settings, indent=2) + '\n', encoding='ascii')
        fresh.rename(out)
    print(f'{out}: wrote {images}', flush=True)


def make_shapes_dataset(
    out: str | Path, num_train: int = 600, num_val: int = 120, image_size: int = 128, seed: int = 0
) -> Path:
    """Generates the dataset in folder `out`, unless it exists, and returns its path.

    Images are square, with a side of `image_size` pixels. The same seed gives the same dataset.
    Invalid settings are a `ValueError`, and an `out` that holds something else a `FileExistsError`.
    """
    settings = Settings(num_train, num_val, image_size, seed)
    out = Path(out)

    def write(folder: Path) -> None:
        for split in SPLITS:
            write_split(folder, settings, split)

    make_once(out, asdict(settings), write)
    return out
