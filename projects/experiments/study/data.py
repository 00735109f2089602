"""Data of a study: generated datasets, some classes of an image folder, or a part of its training images."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.shapes import make_shapes_dataset
from experiments.study.shape_classes import make_shape_classes_dataset
from tokennorm.base.messages import shorten


def take_classes(folder: str | Path, source: str | Path, classes: Sequence[str]) -> None:
    """Makes an image folder of some classes of another one, by symbolic links.

    Args:
        folder: The new folder, `folder/train/CLASS` and `folder/val/CLASS`.
        source: The image folder to take them from, with `train/CLASS/*` and `val/CLASS/*`.
        classes: Names of the classes to take.

    Raises:
        FileNotFoundError: if `source` lacks a class.
        ValueError: if `folder` has other classes.
    """
    for split in ('train', 'val'):
        to, of = Path(folder) / split, Path(source) / split
        if lacking := [name for name in classes if not (of / name).is_dir()]:
            raise FileNotFoundError(
                f'{of} lacks {len(lacking)} of {len(classes)} classes ({shorten(lacking)}): put each class into '
                f'{of}/CLASS'
            )
        to.mkdir(parents=True, exist_ok=True)
        for name in classes:
            if not (to / name).exists():
                (to / name).symlink_to((of / name).resolve(), target_is_directory=True)
        if more := sorted({path.name for path in to.iterdir()} - set(classes)):
            raise ValueError(f'{to} also has other classes ({shorten(more)}); remove that folder')


def hold_out(folder: str | Path, source: str | Path, per_class: int, seed: int = 0) -> None:
    """Splits the training images of an image folder into `folder/train` and `folder/val`, by symbolic links.

    Args:
        folder: The new folder.
        source: The image folder, with `train/CLASS/*`.
        per_class: Number of images per class in `folder/val`, drawn with `seed`.
        seed: Of the draw.
    """
    rng = random.Random(seed)
    for of_class in sorted((Path(source) / 'train').iterdir()):
        images = sorted(of_class.iterdir())
        held_out = set(rng.sample(images, per_class))
        for image in images:
            link = Path(folder) / ('val' if image in held_out else 'train') / of_class.name / image.name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(image.resolve())


MAKERS: dict[str, Callable[..., Any]] = dict(
    shapes=make_shapes_dataset, shape_classes=make_shape_classes_dataset, classes=take_classes, hold_out=hold_out
)


def prepare_data(data: Mapping[str, Mapping[str, Any]]) -> None:
    """Prepares the datasets of a study: folder -> dict(maker=..., and its arguments)."""
    for folder, settings in data.items():
        arguments = dict(settings)
        MAKERS[arguments.pop('maker')](folder, **arguments)
