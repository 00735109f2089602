"""Finds images in a folder per class, DIR/train/CLASS/*.jpg."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tokennorm.base.messages import counted, shorten
from tokennorm.datasets.image_files import is_data, is_image, left_out
from tokennorm.datasets.splits import SPLIT_NAMES

_LAYOUT = 'put the images into DIR/train/CLASS/ and DIR/val/CLASS/, one folder for each class'


class ImageSplit(NamedTuple):
    """A folder of class folders, and the number of images per class, in the order of the labels."""

    folder: Path
    counts: Mapping[str, int]
    left_out: str  # the number of files of formats that are not read, by suffix

    def summary(self, name: str) -> str:
        """Returns one line with the folder and its numbers of images, for the split of this name."""
        counts = self.counts.values()
        left_out = self.left_out and f'; files of formats that are not read: {self.left_out}'
        return (
            f'{name} is {self.folder}: {counted(sum(counts), "image")} of {counted(len(counts), "class")}, '
            f'{min(counts)} to {max(counts)} per class{left_out}'
        )


def find_image_folder(root: str | Path, needed: tuple[str, ...] = ('train', 'val')) -> dict[str, ImageSplit]:
    """Finds the splits of a folder of images in class folders.

    A `test` folder without class folders, such as ImageNet's, has no labels and is not a split. If `needed` is empty, a
    split for evaluation must exist: test or val.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f'--data: folder {root} not found')
    splits = {}
    for name, aliases in SPLIT_NAMES.items():
        folder = next((root / one for one in subfolders(root) if one.lower() in aliases), None)
        if folder is not None and (name != 'test' or subfolders(folder)):
            splits[name] = _image_split(folder)
    for name in needed or (() if 'test' in splits else ('val',)):
        if name not in splits:
            raise FileNotFoundError(f'--data: {root} has no folder {name}: {_LAYOUT}. {_what_is_in(root)}')
    first, *others = splits.values()
    for other in others:  # labels are positions in the sorted names
        if different := sorted(first.counts.keys() ^ other.counts.keys()):
            raise ValueError(
                f'--data: only one of {first.folder} and {other.folder} has the classes {shorten(different)}: every '
                'split needs a folder of the same name for each class'
            )
    return splits


def subfolders(folder: Path) -> list[str]:
    """Returns the names of a folder's folders, sorted, without hidden ones."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and is_data(entry.name))


def _image_split(folder: Path) -> ImageSplit:
    names = subfolders(folder)
    if len(names) < 2:
        found = f'only one class folder, {names[0]}' if names else f'no class folders. {_what_is_in(folder)}'
        raise ValueError(f'--data: {folder} has {found}: {_LAYOUT}')
    counts, unread = dict.fromkeys(names, 0), []
    for place, folders, files in os.walk(folder):
        if others := [name for name in folders if not is_data(name)]:  # mmpretrain would read images in them
            raise ValueError(f'--data: {place}/{others[0]} is not a class; remove it')
        if place != str(folder):
            counts[Path(place).relative_to(folder).parts[0]] += sum(is_data(f) and is_image(f) for f in files)
            unread += [f for f in files if is_data(f) and not is_image(f)]
    if empty := [name for name, count in counts.items() if not count]:
        raise ValueError(f'--data: {folder} has {len(empty)} folders without images ({shorten(empty)}): remove them')
    return ImageSplit(folder, counts, left_out(unread))


def _what_is_in(folder: Path) -> str:
    return f'It has {shorten(sorted(entry.name for entry in os.scandir(folder))) or "nothing"}'
