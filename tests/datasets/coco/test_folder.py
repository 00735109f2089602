"""Annotation files and image folders are found in the layouts that people have."""

import gc
import json

import pytest

from tests.helpers.coco_files import edit
from tokennorm.datasets.discovery import find_splits
from tokennorm.findings import Refusal


def write(root, ann_file, image_names, image_dir):
    """An annotation file of those images, with empty image files."""
    images = [dict(id=i, file_name=name, width=8, height=8) for i, name in enumerate(image_names, 1)]
    one = dict(id=1, image_id=1, category_id=1, bbox=[1, 1, 5, 5], area=25, iscrowd=0)
    content = dict(images=images, annotations=[one], categories=[dict(id=1, name='cat')])
    (root / ann_file).parent.mkdir(parents=True, exist_ok=True)
    (root / ann_file).write_text(json.dumps(content))
    for name in image_names:
        (root / image_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (root / image_dir / name).touch()


LAYOUTS = {
    'ours': ('annotations/{}.json', 'images/{}'),
    'one image folder': ('annotations/{}.json', 'images'),
    'COCO': ('annotations/instances_{}2017.json', '{}2017'),
    'Roboflow': ('{}/_annotations.coco.json', '{}'),
    'side by side': ('{}.json', '.'),
    'a folder a split': ('{}/annotations/labels.json', '{}/images'),
}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_layouts(tmp_path, layout):
    ann_file, image_dir = LAYOUTS[layout]
    for split in ('train', 'val', 'test'):
        write(tmp_path, ann_file.format(split), ['1.jpg', 'a/2.jpg'], image_dir.format(split))
    splits = find_splits(tmp_path)
    assert list(splits) == ['train', 'val', 'test']
    for name, split in splits.items():
        assert split.ann_file == tmp_path / ann_file.format(name)
        assert split.image_dir.resolve() == (tmp_path / image_dir.format(name)).resolve()
        assert len(split.content['images']) == 2


def test_absolute_names_do_not_hide_the_folder_of_the_others(tmp_path):
    for split in ('train', 'val'):
        names = [str(tmp_path / 'images' / split / f'{i}.jpg') for i in range(60)]
        write(tmp_path, f'annotations/{split}.json', [*names, 'last.jpg'], f'images/{split}')
    splits = find_splits(tmp_path)
    assert [split.image_dir for split in splits.values()] == [tmp_path / 'images' / split for split in splits]
    assert splits['train'].content['images'][-1]['file_name'] == 'last.jpg'


def test_images_of_another_split_are_not_taken(tmp_path):
    """The names of files are the same in each split."""
    write(tmp_path, 'annotations/train.json', ['1.jpg'], 'pictures')
    write(tmp_path, 'annotations/val.json', ['1.jpg'], 'dev')
    splits = find_splits(tmp_path)
    assert [split.image_dir for split in splits.values()] == [tmp_path / 'pictures', tmp_path / 'dev']


def test_valid_is_val_and_test_is_optional(tmp_path):
    write(tmp_path, 'train/_annotations.coco.json', ['a.jpg'], 'train')
    write(tmp_path, 'valid/_annotations.coco.json', ['a.jpg'], 'valid')
    splits = find_splits(tmp_path)
    assert list(splits) == ['train', 'val']
    assert splits['val'].image_dir == tmp_path / 'valid'  # both folders have an a.jpg: the one named so


def test_a_test_split_without_objects_is_none(tmp_path):
    for split in ('train', 'val', 'test'):
        write(tmp_path, f'annotations/{split}.json', ['1.jpg', '2.jpg'], split)
    edit(tmp_path, 'test', lambda c: c['annotations'].clear())
    splits = find_splits(tmp_path)
    assert list(splits) == ['train', 'val']


def test_of_several_files_the_plainest_name_is_taken(tmp_path):
    for split in ('train', 'val'):
        for name in ('instances', 'captions', 'person_keypoints', 'labels'):
            write(tmp_path, f'annotations/{name}_{split}2017.json', ['a.jpg'], f'{split}2017')
    write(tmp_path, 'annotations/image_info_test2017.json', ['a.jpg'], 'test2017')
    (tmp_path / 'annotations/image_info_test2017.json').write_text(json.dumps(dict(images=[], categories=[])))
    splits = find_splits(tmp_path)
    assert {name: split.ann_file.name for name, split in splits.items()} == {
        'train': 'instances_train2017.json',
        'val': 'instances_val2017.json',
    }


def test_an_unreadable_test_file_is_not_a_missing_one(tmp_path):
    for split in ('train', 'val', 'test'):
        write(tmp_path, f'{split}.json', ['a.jpg'], '.')
    (tmp_path / 'test.json').write_text('{"images": [')
    with pytest.raises(Refusal, match=r'test.json cannot be read as JSON'):
        find_splits(tmp_path)


def test_two_files_that_fit_alike_are_an_error(tmp_path):
    for folder in ('a', 'b'):
        for split in ('train', 'val'):
            write(tmp_path, f'{folder}/{split}.json', ['a.jpg'], 'images')
    with pytest.raises(Refusal, match=r'a/train.json, .*b/train.json match train equally well'):
        find_splits(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(Refusal, match='nowhere is not a folder'):
        find_splits(tmp_path / 'nowhere')
    write(tmp_path, 'annotations/train.json', ['a.jpg'], 'images')
    write(tmp_path, 'annotations/instances_default.json', ['a.jpg'], 'images')
    with pytest.raises(Refusal, match=r'COCO dataset without val; it has train; .*/instances_default.json'):
        find_splits(tmp_path)


def test_files_that_are_not_coco_are_named(tmp_path):
    for split in ('train', 'val'):
        write(tmp_path, f'annotations/{split}.json', ['a.jpg'], 'images')
    for content in ('', '\ufeff{}', '{', '[]', '{"images": []}', '{"images": 1, "annotations": [], "categories": []}'):
        (tmp_path / 'annotations/val.json').write_text(content)
        with pytest.raises(Refusal, match=r'val.json (cannot be read as JSON|is not a COCO annotation file)'):
            find_splits(tmp_path)
        assert gc.isenabled()
