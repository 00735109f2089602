"""Divides the images of a COCO annotation file, or of a YOLO or Pascal VOC folder without val, into train and val."""

import json
import os
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.folder import read_annotations
from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_files import list_files
from tokennorm.datasets.programs.unread import check_known
from tokennorm.datasets.splits import CocoSplit
from tokennorm.messages import shorten

_TILE = re.compile(r'(.*)_(\d+)_(\d+)_(\d+)_(\d+)(?:_[A-Za-z]\w*)?\.\w+')  # SAHI's, `_png` by Roboflow


def find_unsplit(path: Path) -> dict[str, CocoSplit]:
    """Returns the images to divide under the name `train`, and those of a YOLO or VOC folder's test split.

    Their file names are relative to the folder that the new annotation files belong in, which is `image_dir`.
    """
    if not path.exists():
        raise FileNotFoundError(f'{path} not found; name an annotation file, or a YOLO or Pascal VOC folder')
    if path.is_file() and path.suffix not in ('.yaml', '.yml'):
        check_known(path)
        root = path.parent
        content, folder = read_annotations({path.stem: path}, root, list_files(root))[path.stem]
        for one in content['images']:
            if isinstance(one.get('file_name'), str):
                one['file_name'] = os.path.relpath(folder / one['file_name'], root)
        return dict(
            train=CocoSplit(path.name, path, root, normalize({path.name: content}, {path.name: root})[path.name])
        )
    splits = find_splits(path, ('train',))
    if 'val' in splits:
        raise ValueError(
            f'{path} has a val split already: {len(splits["val"].content["images"])} images; train with --data {path} '
            'as it is'
        )
    if (file := Path(splits['train'].source)).is_file():
        raise ValueError(f'{path} is a COCO dataset; name the file to divide, {file}')
    return splits


def split_annotations(
    splits: dict[str, CocoSplit], val_fraction: float, seed: int, group: str | None = None
) -> dict[str, Path]:
    """Writes `train.json` and `val.json` with the images of train, and `test.json` if `splits` has test.

    Augmented copies and tiles of an image stay together, so that val has images that training has not seen. So do
    images in whose file names the regular expression `group` finds the same text.
    """
    whole = splits['train']
    images = sorted(whole.content['images'], key=lambda image: str(image['file_name']))
    random.Random(seed).shuffle(images)
    num_val = round(val_fraction * len(images)) if 0 < val_fraction < 1 else 0
    of_file, places = _origins(images, group), {}  # of the first part
    origins = [of_file[str(image['file_name'])] for image in images]
    for i, origin in enumerate(origins):
        places.setdefault(origin, i)
    order = sorted(range(len(images)), key=lambda i: places[origins[i]])
    images, origins = [images[i] for i in order], [origins[i] for i in order]
    ends = [i for i in range(1, len(images)) if origins[i - 1] != origins[i]]
    if num_val in range(1, len(images)):
        num_val = min(ends, key=lambda end: abs(end - num_val), default=0)
    if not 0 < num_val < len(images):
        groups = f' (groups that stay together: {len(places)})' if len(places) < len(images) else ''
        raise ValueError(f'a fraction of {val_fraction} of {len(images)} images{groups} leaves a split without images')
    contents = {name: split.content for name, split in splits.items()}
    for name, part in dict(train=images[num_val:], val=images[:num_val]).items():
        ids = {image['id'] for image in part}
        annotations = [one for one in whole.content['annotations'] if one['image_id'] in ids]
        contents[name] = {**whole.content, 'images': part, 'annotations': annotations}
    files = {name: whole.image_dir / f'{name}.json' for name in contents}
    for path in files.values():
        if path.exists():
            raise FileExistsError(f'{path} already exists; rename it, for example to all.json, or remove it')
    for name, path in files.items():
        path.write_text(json.dumps({key: value for key, value in contents[name].items() if key != 'tokennorm'}))
    return files


def _origins(images: Sequence[Mapping[str, Any]], group: str | None) -> dict[str, str]:
    """For each file name, what `group` finds in it, or the name without what tells the parts of one image apart.

    These are Roboflow's augmented copies, such as `.rf.1b2c`, and SAHI's tiles, whose corners are in their names, if
    any is a first one such as `_0_0_512_512`.
    """
    names = [str(image['file_name']) for image in images]
    if group is not None:
        found = {name: re.search(group, name) for name in names}
        if missing := [name for name, match in found.items() if not match or not match[0]]:
            raise ValueError(f'--group {group} finds nothing in {len(missing)} file names: {shorten(missing)}')
        return {name: match[0] for name, match in found.items() if match}
    wholes = {name: re.sub(r'\.rf\.\w+', '', name) for name in names}
    matches = {name: found for name, whole in wholes.items() if (found := _TILE.fullmatch(whole))}
    tiles = {name: found[1] for name, found in matches.items() if _is_tile(*map(int, found.groups()[1:]))}
    if any(matches[name][2] == matches[name][3] == '0' for name in tiles):
        wholes |= tiles
    return wholes


def _is_tile(left: int, top: int, right: int, bottom: int) -> bool:
    return min(right - left, bottom - top) >= 64  # smaller numbers are those of dates
