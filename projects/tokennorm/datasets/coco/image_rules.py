"""Rules about the image files of splits: whether they can be read, their sizes, and files with the same content."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.entries import original_id
from tokennorm.datasets.image_files import map_files, open_image
from tokennorm.datasets.splits import CocoSplit
from tokennorm.findings import reports

_File = tuple[str, Path]  # with the name of its split


def begin_to_open(split: CocoSplit) -> Iterator[tuple[str, tuple[int, int], bool]]:
    """Begins to open the images, and returns the results of `open_image`."""
    names = [image['file_name'] for image in split.content['images']]
    return map_files(partial(open_image, split.image_dir), names, f'Images of {split.name}')


def judge_images(split: CocoSplit, opened: Iterable[tuple[str, tuple[int, int], bool]]) -> None:
    """Reports files that cannot be read, that have another size than is annotated, and those that EXIF turns."""
    unreadable: dict[str, list[str]] = defaultdict(list)
    other_size, turned = [], []
    for image, (problem, size, is_turned) in zip(split.content['images'], opened, strict=True):
        name, width, height = image['file_name'], image['width'], image['height']
        if problem:
            unreadable[problem].append(f'{name} (id {original_id(image)})')
        elif size != (width, height):
            other_size.append(f'{name} (id {original_id(image)}, {size[0]}x{size[1]}, annotated {width}x{height})')
        if is_turned:
            turned.append(name)
    for problem, names in unreadable.items():
        reports('unreadable-image', split.name, f'image files {problem} in {split.image_dir}', names)
    if other_size:
        reports('image-size', split.name, items=other_size)
    if turned:
        reports('exif-rotation', split.name, items=turned)


def find_equal_files(splits: Mapping[str, CocoSplit]) -> None:
    """Reports files with the same content in two splits, or twice in one, whatever their names."""
    by_size: dict[int, list[_File]] = defaultdict(list)
    for split in splits.values():
        for path in {split.image_dir / image['file_name']: None for image in split.content['images']}:
            if path.is_file():
                by_size[path.stat().st_size].append((split.name, path))
    names: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))  # in each split
    for i, group in enumerate(_alike(_alike(by_size.values(), _end), _digest)):
        for split_name, path in group:
            names[i][split_name].append(path.name)
    for first, second in combinations(splits, 2):
        both = [(file[first][0], file[second][0]) for file in names.values() if first in file and second in file]
        if both:
            shared = [one if one == other else f'{one} = {other}' for one, other in both]
            reports('shared-images', '', f'images in both {first} and {second}', shared)
    for split in splits:
        if twice := [' = '.join(file[split]) for file in names.values() if len(file.get(split, ())) > 1]:
            reports('same-content', split, items=twice)


def _alike(groups: Iterable[list[_File]], function: Callable[[Path], Any]) -> Iterable[list[_File]]:
    """Divides groups of two files or more by the results of a function of the path."""
    files = [file for group in groups if len(group) > 1 for file in group]
    results: dict[Any, list[_File]] = defaultdict(list)
    for file, result in zip(files, map_files(function, [path for _, path in files], 'Images of one size'), strict=True):
        results[result].append(file)
    return results.values()


def _end(path: Path) -> tuple[int, bytes]:
    """The size and the last bytes of a file, which differ in most images, without reading all of it."""
    with path.open('rb') as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 4096, 0))
        return size, file.read()


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
