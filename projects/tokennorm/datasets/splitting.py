"""Divides the images of a COCO annotation file, or of a YOLO or Pascal VOC folder without val, into train and val."""

import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokennorm.base.files import write_atomically
from tokennorm.base.messages import UserError, counted
from tokennorm.datasets.coco.folder import read_whole
from tokennorm.datasets.discovery import find_splits, in_canonical_form
from tokennorm.datasets.splits import CocoSplit
from tokennorm.datasets.unread import check_known


def find_unsplit(path: Path) -> dict[str, CocoSplit]:
    """Returns the images to divide under the name `train`, and those of a YOLO or VOC folder's test split.

    Their file names are relative to the folder that the new annotation files belong in, which is `image_dir`.
    """
    if path.is_file() and path.suffix not in ('.yaml', '.yml'):
        check_known(path)
        (split,) = in_canonical_form(read_whole(path), path.parent).values()
        place, images = os.path.relpath(split.image_dir, path.parent), split.content['images']
        paths = [os.path.normpath(os.path.join(place, str(image.get('file_name')))) for image in images]
        images = [image | dict(file_name=name) for image, name in zip(images, paths, strict=True)]
        return dict(train=replace(split, image_dir=path.parent, content={**split.content, 'images': images}))
    splits = find_splits(path, ('train',))
    if 'val' in splits:
        size = counted(len(splits['val'].content['images']), 'image')
        raise ValueError(f'{path} has a val split already: {size}; train with --data {path} as it is')
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
    groups = _groups(whole.content['images'], seed, group)
    count = len(whole.content['images'])
    wanted, val = val_fraction * count, list[Mapping[str, Any]]()
    for some in groups:
        number = len(val) + len(some)
        if number == count or abs(number - wanted) >= abs(len(val) - wanted):
            break
        val += some
    if not 0 < len(val) < count:
        of_images = f'of {counted(count, "image")} (groups that stay together: {len(groups)})'
        raise ValueError(f'a fraction of {val_fraction} {of_images} leaves a split without images')
    contents = {name: split.content for name, split in splits.items()}
    contents |= _divided(whole.content, {image['id'] for image in val})
    files = {name: whole.image_dir / f'{name}.json' for name in contents}
    for path in files.values():
        if path.exists():
            raise FileExistsError(f'{path} already exists; rename it, for example to all.json, or remove it')
    for name, path in files.items():
        path.write_text(json.dumps({key: value for key, value in contents[name].items() if key != 'tokennorm'}))
    return files


def write_folds(whole: CocoSplit, folds: int, folder: Path) -> None:
    """Writes train and val of each fold into `folder/NUMBER/data`, whose val parts are all of the images together.

    Augmented copies of an image stay together. Files of an earlier call with the same annotations stay as they are.

    Raises:
        UserError: where the files are of other annotations, and for fewer groups of images than folds.
    """
    groups = _groups(whole.content['images'], seed=0)
    if len(groups) < folds:
        size = counted(len(groups), 'image')
        raise UserError(f'--folds {folds}: {whole.source} has only {size}, or groups of copies')
    images = [
        one | dict(file_name=os.path.abspath(whole.image_dir / one['file_name'])) for one in whole.content['images']
    ]
    content = {key: value for key, value in whole.content.items() if key != 'tokennorm'} | dict(images=images)
    for number in range(folds):
        chosen = {image['id'] for some in groups[number::folds] for image in some}
        for name, part in _divided(content, chosen).items():
            path, text = folder / str(number + 1) / 'data' / f'{name}.json', json.dumps(part).encode()
            if not path.exists():
                write_atomically(path, text)
            elif path.read_bytes() != text:
                raise UserError(
                    f'{folder} has detectors of other annotations or another number of folds; choose another --out, or '
                    'delete it'
                )


def _groups(images: Sequence[Mapping[str, Any]], seed: int, group: str | None = None) -> list[list[Mapping[str, Any]]]:
    """Images that stay together, in random order."""
    images = sorted(images, key=lambda image: str(image['file_name']))
    random.Random(seed).shuffle(images)
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for image in images:
        groups[_origin(str(image['file_name']), group)].append(image)
    return list(groups.values())


def _divided(content: Mapping[str, Any], of_val: set[Any]) -> dict[str, dict[str, Any]]:
    """Train and val of images, with the ids of those of val."""
    contents = {}
    for name, is_val in (('train', False), ('val', True)):
        part = [image for image in content['images'] if (image['id'] in of_val) == is_val]
        ids = {image['id'] for image in part}
        annotations = [one for one in content['annotations'] if one['image_id'] in ids]
        contents[name] = {**content, 'images': part, 'annotations': annotations}
    return contents


def _origin(name: str, group: str | None) -> str:
    """What `group` finds in the name of a file, or the name without what Roboflow adds to copies, `.rf.1b2c`."""
    if group is None:
        return re.sub(r'\.rf\.\w+', '', name)
    match = re.search(group, name)
    if not match or not match[0]:
        raise ValueError(f'--group {group} finds nothing in the file name {name}')
    return match[0]
