"""YOLO folders: a `data.yaml` with class names and image folders, and one label file per image.

Each line of a label file is an object: its class, counted from 0, and either a box (center, width and height) or a
polygon (three corners or more), as fractions of the image's width and height.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tokennorm.datasets.coco.folder import SPLIT_NAMES
from tokennorm.datasets.converted import LabeledImage, LabelFolder, coco_object
from tokennorm.datasets.image_files import list_images

_TOLERANCE = 0.01  # beyond the image's border, as fractions; labeling tools round


def find_yolo(root: Path) -> LabelFolder | None:
    """The YOLO dataset of a folder, or of a `data.yaml`; None if there is no such file."""
    file = root if root.is_file() else _find_yaml(root)
    if file is None:
        return None
    content = _read_yaml(file)
    names = _class_names(content, file)
    base = file.parent / Path(str(content.get('path') or '')).expanduser()
    if not base.is_dir():  # of another machine
        base = file.parent
    splits = {}
    for split, keys in SPLIT_NAMES.items():
        value = next((content[key] for key in keys if content.get(key)), None)
        if value is None:
            continue
        places = value if isinstance(value, list) else [value]
        images = [path for place in places for path in _images(place, base, file, split)]
        labels = [path if path.is_file() else None for path in map(_label_path, images)]
        if any(labels):
            splits[split] = list(map(LabeledImage, images, labels))
        elif split != 'test' and not images:
            raise ValueError(f'{file}: {split}={value!r} has no images')
        elif split != 'test':
            raise ValueError(
                f'{file}: {split} has no label file for any of {len(images)} images; {_label_path(images[0])} was '
                f'expected for {images[0]}'
            )
    root = file.parent if root.is_file() else root
    return LabelFolder('YOLO', root, names, splits, partial(_read_labels, len(names)))


def _read_labels(num_classes: int, entry: LabeledImage, size: tuple[int, int]) -> list[dict[str, Any]]:
    if entry.labels is None:
        return []
    try:
        lines = entry.labels.read_text(encoding='utf-8-sig').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f'{entry.labels} cannot be read: {error}') from error
    objects = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                objects.append(_read_line(line.split(), size, num_classes))
            except ValueError as error:
                raise ValueError(f'{entry.labels}, line {number}: {error}') from error
    return objects


def _find_yaml(root: Path) -> Path | None:
    """`data.yaml` or `dataset.yaml`, or else the only YAML file of the folder with `names`."""
    paths = sorted([*root.glob('*.yaml'), *root.glob('*.yml')])
    usual = [path for path in paths if path.stem in ('data', 'dataset')]
    others = [path for path in paths if 'names' in path.read_text(errors='replace')]
    return usual[0] if usual else others[0] if len(others) == 1 else None


def _read_yaml(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding='utf-8-sig'))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f'{file} cannot be read as YAML: {" ".join(str(error).split())}') from error
    if not isinstance(content, dict):
        raise ValueError(f'{file} is not a YOLO dataset: it needs names, train and val')
    return content


def _class_names(content: Mapping[str, Any], file: Path) -> list[str]:
    names = content.get('names')
    if isinstance(names, dict):
        names = [names.get(i) for i in range(len(names))]
    if not isinstance(names, list) or not names or None in names:
        raise ValueError(f'{file}: names={content.get("names")!r} must be a list, or a mapping whose keys count from 0')
    if content.get('nc', len(names)) != len(names):
        raise ValueError(
            f'{file}: nc={content["nc"]}, but names has {len(names)} classes: {", ".join(map(str, names))}'
        )
    return [str(name) for name in names]


def _images(value: Any, base: Path, file: Path, split: str) -> list[Path]:
    """The images of a folder, or of a text file with a path per line."""
    # Roboflow writes ../train/images for the folder next to the file.
    tried = [base / str(value), file.parent / str(value), file.parent / str(value).removeprefix('../')]
    found = next((path for path in tried if path.exists()), None)
    if found is None:
        looked = ' and '.join(dict.fromkeys(map(str, tried)))
        raise ValueError(f'{file}: {split}={value!r} not found; looked for {looked}')
    if found.is_dir():
        return list_images(found)
    lines = [line.strip() for line in found.read_text(encoding='utf-8-sig').splitlines() if line.strip()]
    images = [found.parent / line if line.startswith('./') else base / line for line in lines]
    missing = [str(path) for path in images if not path.is_file()]
    if missing:
        raise ValueError(f'{found}: {len(missing)} of {len(images)} images not found, such as {missing[0]}')
    return images


def _label_path(image: Path) -> Path:
    """YOLO's rule: the last folder `images` becomes `labels`; without one the label file is next to the image."""
    parts = list(image.parts)
    if 'images' in parts[:-1]:
        parts[len(parts) - 2 - parts[-2::-1].index('images')] = 'labels'
    return Path(*parts).with_suffix('.txt')


def _read_line(words: list[str], size: tuple[int, int], num_classes: int) -> dict[str, Any]:
    """One line of a label file as a COCO annotation. A sixth value of a box, its score, is ignored."""
    try:
        values = [float(word) for word in words]
    except ValueError:
        raise ValueError(f'{" ".join(words)!r:.80} is not a list of numbers') from None
    if len(values) not in (5, 6) and (len(values) < 7 or len(values) % 2 == 0):
        raise ValueError(
            f'{len(values)} numbers are neither a class and a box (5) nor a class and a polygon (7, 9, ...)'
        )
    label, coordinates = values[0], values[1:5] if len(values) < 7 else values[1:]
    if label not in range(num_classes):
        raise ValueError(f'class {words[0]} is not one of the {num_classes} of data.yaml, which count from 0')
    outside = [value for value in coordinates if not -_TOLERANCE <= value <= 1 + _TOLERANCE]  # NaN too
    if outside:
        raise ValueError(f'{outside[0]:g} is outside the image: coordinates must be fractions between 0 and 1')
    corners = np.reshape(coordinates, (-1, 2)) * size
    if len(values) < 7:
        center, sides = corners
        return coco_object(int(label) + 1, [*(center - sides / 2).tolist(), *sides.tolist()])
    box = [*corners.min(0).tolist(), *np.ptp(corners, 0).tolist()]
    return coco_object(int(label) + 1, box, corners.flatten().tolist())
