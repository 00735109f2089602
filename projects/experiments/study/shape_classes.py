"""Shape classes: small images with one shape each, generated from a seed, in one folder per class for classifiers.

The images are painted like the shapes dataset (`shapes.py`: backgrounds, clutter, shadows, blur, noise), with one
object. Its class is its outline and its surface, such as 'star-stripes'; its hue depends on the outline, as in the
shapes dataset. Images are assigned to the classes in turn: `<split>/<class>/<number>.jpg`. Image `index` of a split
depends only on (seed, split, index).
"""

from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import cv2
import numpy as np

from experiments.shapes.dataset import CLASSES, SPLITS, Settings, make_once, random_shape
from experiments.shapes.painting import paint

SURFACES = ('plain', 'stripes', 'speckle')
SHAPE_CLASSES = tuple(f'{outline}-{surface}' for outline in CLASSES for surface in SURFACES)
SIZES = (0.35, 0.7)  # of the image's side, log-uniform
CONTRAST = 3.0  # of the surface, over that of the shapes dataset
MIN_INSIDE = 0.75  # of the shape's area


@dataclass(frozen=True)
class ClassSettings(Settings):
    """`Settings` of the shapes dataset, with another task in `dataset.json`."""

    task: str = 'classification'


def make_class_image(settings: ClassSettings, split: str, index: int) -> np.ndarray:
    """Returns the image (S, S, 3) uint8 BGR of class `index % 12`."""
    rng = np.random.default_rng([settings.seed, len(SPLITS) + SPLITS.index(split), index])
    label, surface = divmod(index % len(SHAPE_CLASSES), len(SURFACES))
    sizes = [share * settings.image_size for share in SIZES]
    shapes = (random_shape(rng, settings.image_size, label, sizes) for _ in count())
    shape = next(shape for shape in shapes if shape.mask.sum() >= MIN_INSIDE * shape.full_area)
    return paint(rng, [replace(shape, surface=SURFACES[surface], contrast=CONTRAST)], settings.image_size)


def make_shape_classes_dataset(
    out: str | Path,
    num_train: int = 2400,
    num_val: int = 600,
    image_size: int = 64,
    seed: int = 0,
) -> Path:
    """Generates the dataset in folder `out`, unless it exists, and returns its path; as `make_shapes_dataset`."""
    settings = ClassSettings(num_train, num_val, image_size, seed)
    if min(num_train, num_val) < len(SHAPE_CLASSES):
        raise ValueError(
            f'a split needs at least one image of each of {len(SHAPE_CLASSES)} classes, '
            f'got {num_train} train and {num_val} val'
        )
    out = Path(out)

    def write(folder: Path) -> None:
        for split in SPLITS:
            for index in range(getattr(settings, f'num_{split}')):
                path = folder / split / SHAPE_CLASSES[index % len(SHAPE_CLASSES)] / f'{index + 1:06d}.jpg'
                path.parent.mkdir(parents=True, exist_ok=True)
                image = make_class_image(settings, split, index)
                if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 95]):
                    raise OSError(f'could not write {path}')

    make_once(out, asdict(settings), write)
    return out
