"""Divides the images of a COCO annotation file, or of a YOLO or Pascal VOC folder without val, into train and val."""

import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.folder import read_whole
from tokennorm.datasets.discovery import find_splits, in_canonical_form
from tokennorm.datasets.splits import CocoSplit
from tokennorm.datasets.unread import check_known


def find_unsplit(path: Path) -> dict[str, CocoSplit]:
    """Returns the images to divide under the name `train`, and those of a YOLO or VOC folder's test split.

    Their file names are relative to the folder that the new annotation files belong in, which is `image_dir`.
    """
    if not path.exists():
        raise FileNotFoundError(f'{path} not found; name an annotation file, or a YOLO or Pascal VOC folder')
    if path.is_file() and path.suffix not in ('.yaml', '.yml'):
        check_known(path)
        (split,) = in_canonical_form(read_whole(path), path.parent).values()
        place, images = os.path.relpath(split.image_dir, path.parent), split.content['images']
        paths = [os.path.normpath(os.path.join(place, str(image.get('file_name')))) for image in images]
        images = [image | dict(file_name=name) for image, name in zip(images, paths, strict=True)]
        return dict(train=replace(split, image_dir=path.parent, content={**split.content, 'images': images}))
    splits = find_splits(path, ('train',))
    if 'val' in splits:
        number = len(splits['val'].content['images'])
        raise ValueError(f'{path} has a val split already: {number} images; train with --data {path} as it is')
    if (file := Path(splits['train'].source)).is_file():
        raise ValueError(f'{path} is a COCO dataset; name the file to divide, {file}')
    return splits


def split_annotations(
    splits: dict[str, CocoSplit], val_fraction: float, seed: int, group: str | None = None
) -> dict[str, Path]:
    """Writes `train.json` and `val.json` with the images of train, and `test.json` if `splits` has test.

    Augmented copies of an image stay together, so that val has images that training has not seen. So do images in whose
    file names the regular expression `group` finds the same text.
    """
    whole = splits['train']
    images = sorted(whole.content['images'], key=lambda image: str(image['file_name']))
    random.Random(seed).shuffle(images)
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for image in images:
        groups[_origin(str(image['file_name']), group)].append(image)
    wanted, val = val_fraction * len(images), list[Mapping[str, Any]]()
    for some in groups.values():
        number = len(val) + len(some)
        if number == len(images) or abs(number - wanted) >= abs(len(val) - wanted):
            break
        val += some
    if not 0 < len(val) < len(images):
        of_images = f'of {len(images)} images (groups that stay together: {len(groups)})'
        raise ValueError(f'a fraction of {val_fraction} {of_images} leaves a split without images')
    contents = {name: split.content for name, split in splits.items()}
    of_val = {image['id'] for image in val}
    for name, is_val in (('train', False), ('val', True)):
        part = [image for image in images if (image['id'] in of_val) == is_val]
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


def _origin(name: str, group: str | None) -> str:
    """What `group` finds in the name of a file, or the name without what Roboflow adds to copies, `.rf.1b2c`."""
    if group is None:
        return re.sub(r'\.rf\.\w+', '', name)
    match = re.search(group, name)
    if not match or not match[0]:
        raise ValueError(f'--group {group} finds nothing in the file name {name}')
    return match[0]
