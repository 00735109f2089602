"""Divides one COCO annotation file into train and val."""

import json
import random
from pathlib import Path

from tokennorm.datasets.coco.folder import read_coco_file


def split_annotations(ann_file: Path, val_fraction: float, seed: int) -> dict[str, Path]:
    """Writes `train.json` and `val.json` next to an annotation file."""
    content = read_coco_file(ann_file)
    images = sorted(content['images'], key=lambda image: str(image.get('file_name')))
    random.Random(seed).shuffle(images)
    num_val = round(val_fraction * len(images))
    if not 0 < num_val < len(images):
        raise ValueError(f'a fraction of {val_fraction} of {len(images)} images leaves a split without images')
    parts = dict(train=images[num_val:], val=images[:num_val])
    files = {name: ann_file.with_name(f'{name}.json') for name in parts}
    for path in files.values():
        if path == ann_file:
            raise FileExistsError(f'{path} would be overwritten; rename it first, for example to all.json')
        if path.exists():
            raise FileExistsError(f'{path} already exists; remove it or move {ann_file.name} elsewhere')
    for name, path in files.items():
        ids = {image['id'] for image in parts[name]}
        annotations = [annotation for annotation in content['annotations'] if annotation.get('image_id') in ids]
        path.write_text(json.dumps(content | dict(images=parts[name], annotations=annotations)))
    return files
