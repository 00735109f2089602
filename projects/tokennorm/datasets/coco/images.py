"""Checks the image files of the splits: that they can be read, their sizes, and files that are in two splits."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from pathlib import Path

from tokennorm.datasets.coco.folder import CocoSplit
from tokennorm.datasets.coco.problems import Inspection, grouped, list_items
from tokennorm.datasets.image_files import map_files, open_image


def inspect_images(split: CocoSplit, found: Inspection) -> None:
    """Opens every image file, and adds what is wrong with it."""
    images = split.content['images']
    problems, differing = defaultdict(list), []
    names = [image['file_name'] for image in images]
    opened = map_files(partial(open_image, split.image_dir), names, f'Images of {split.name}')
    for image, (problem, size) in zip(images, opened, strict=True):
        label = f'{image["file_name"]} (id {image["id"]})'
        if problem:
            problems[f'image files {problem} in {split.image_dir}'].append(label)
        elif size != (image['width'], image['height']):
            listed = f'{image["width"]}x{image["height"]}'
            differing.append(f'{label[:-1]}, {size[0]}x{size[1]}, annotated {listed})')
    if differing:
        found.errors.append(
            f'{split.name}: image files whose size, after rotation by EXIF, is not that of the annotation file, so '
            f'that boxes are misplaced: {list_items(differing)}'
        )
    found.errors += grouped(split.name, problems)


def find_shared_images(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Adds files with the same content in two splits, whatever their names."""
    by_size: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for split in splits.values():
        for image in split.content['images']:
            path = os.path.join(split.image_dir, image['file_name'])
            if os.path.isfile(path):
                by_size[os.path.getsize(path)].append((split.name, path))
    files = [file for group in by_size.values() if len({name for name, _ in group}) > 1 for file in group]
    names: dict[bytes, dict[str, str]] = defaultdict(dict)  # of the file in each split, by digest
    for (split_name, path), digest in zip(
        files, map_files(_digest, [path for _, path in files], 'Images of the same size'), strict=True
    ):
        names[digest].setdefault(split_name, Path(path).name)
    for first, second in combinations(splits, 2):
        both = [
            (of_file[first], of_file[second]) for of_file in names.values() if first in of_file and second in of_file
        ]
        if both:
            shared = [one if one == other else f'{one} = {other}' for one, other in both]
            found.warnings.append(f'images in both {first} and {second}: {list_items(shared)}')


def _digest(path: str) -> bytes:
    """A hash of a file's content."""
    return hashlib.sha256(Path(path).read_bytes()).digest()
