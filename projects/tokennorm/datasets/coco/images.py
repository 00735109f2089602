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
    problems, notes, differing = defaultdict(list), defaultdict(list), []
    names = [image['file_name'] for image in images]
    opened = map_files(partial(open_image, split.image_dir), names, f'Images of {split.name}')
    for image, (problem, size, of_image) in zip(images, opened, strict=True):
        label = f'{image["file_name"]} (id {image["id"]})'
        for note in of_image:
            notes[f'image files {note}'].append(label)
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
    found.warnings += grouped(split.name, notes)


def find_shared_images(splits: Mapping[str, CocoSplit], found: Inspection) -> None:
    """Adds files with the same content in two splits, whatever their names."""
    by_size: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for split in splits.values():
        for image in split.content['images']:
            path = os.path.join(split.image_dir, image['file_name'])
            try:
                by_size[os.stat(path).st_size].append((split.name, path))
            except (OSError, ValueError):  # missing, or a name that no file system has
                continue
    candidates = [files for files in by_size.values() if len({split for split, _ in files}) > 1]
    names: dict[bytes, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    paths = [file for files in candidates for file in files]
    digests = map_files(_digest, [path for _, path in paths], 'Images of the same size')
    for (split_name, path), digest in zip(paths, digests, strict=True):
        if digest:
            names[digest][split_name].append(Path(path).name)
    for first, second in combinations(splits, 2):
        shared = [
            ' = '.join(dict.fromkeys([by_split[first][0], by_split[second][0]]))
            for by_split in names.values()
            if first in by_split and second in by_split
        ]
        if shared:
            found.warnings.append(f'images in both {first} and {second}: {list_items(shared)}')


def _digest(path: str) -> bytes:
    """A hash of a file's content; b'' for what is not a file."""
    try:
        with open(path, 'rb') as file:
            return hashlib.sha256(file.read()).digest()
    except OSError:
        return b''
