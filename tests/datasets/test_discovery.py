"""The format of a folder is found, with its splits and labels, and folders without them are named."""

import shutil

import pytest
import yaml

from tests.helpers.folders import NAMES, by_image, write_yolo
from tokennorm.datasets.discovery import find_splits
from tokennorm.findings import Refusal


def test_lists_of_files_relative_paths_and_the_yaml_itself(coco, tmp_path):
    """Ultralytics' and Roboflow's ways of naming the images; a `path` of another machine is ignored."""
    root = write_yolo(coco, tmp_path / 'yolo')
    expected = by_image(find_splits(root)['train'])
    images = sorted((root / 'images' / 'train').iterdir())
    (root / 'train.txt').write_text('\n'.join(f'./images/train/{path.name}' for path in images))
    names = dict(enumerate(NAMES))
    for train in ('train.txt', '../images/train', ['images/train'], str(root / 'images' / 'train')):
        content = dict(path='/home/someone/data', train=train, val='images/val', names=names, nc=4)
        (root / 'data.yaml').write_text(yaml.safe_dump(content))
        assert by_image(find_splits(root)['train']) == expected
        assert by_image(find_splits(root / 'data.yaml')['train']) == expected


def test_folders_without_labels_or_splits_are_named(coco, tmp_path):
    root = write_yolo(coco, tmp_path / 'yolo')
    shutil.rmtree(root / 'labels' / 'train')
    with pytest.raises(
        Refusal, match=r'train has no label file for any of 8 images; .*labels/train/.*txt was expected'
    ):
        find_splits(root)
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(val='images/val', names=NAMES)))
    with pytest.raises(Refusal, match='is a YOLO dataset without train; it has val'):
        find_splits(root)
    assert list(find_splits(root, needed=())) == ['val']
    (root / 'data.yaml').write_text('names: [')
    with pytest.raises(Refusal, match=r'data.yaml cannot be read as YAML'):
        find_splits(root)
