"""YOLO folders: lines are read by what the folder says, classes and files by their names."""

import json
import os
import shutil
from itertools import pairwise

import pytest
import yaml

from tests.helpers.data_folders import objects
from tests.helpers.folders import NAMES, assert_same_objects, write_yolo
from tests.helpers.judging import codes, finding, judge
from tokennorm.base.messages import UserError
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.image_files import list_images
from tokennorm.findings import Refusal

CORNERS = '0 0.3125 0.15625 0.416667 0.3125 0.3125 0.46875 0.208333 0.3125'  # around 20, 10, 20, 20
BOX = '0 0.208333 0.3125 0.208333 0.3125'  # 10, 10, 20, 20
FOUR = 'four-corners'
YOLO = {  # content of data.yaml, a line, the box or the code and a part of an item, and the code of a note
    'box': ({}, BOX, [10, 10, 20, 20]),
    'score': ({}, f'{BOX} 0.9', [10, 10, 20, 20]),
    'track': ({}, f'{BOX} 17', [10, 10, 20, 20]),
    'angle': ({}, f'{BOX} 1.57', ('invalid-label', '6 numbers are neither a class and a box')),
    'angle of an oriented box': (
        dict(task='obb'),
        f'{BOX} 0.5',
        ('invalid-label', '6 numbers are neither a class and a box'),
    ),
    'keypoints': (dict(kpt_shape=[2, 3]), f'{BOX} 0.5 0.5 2 0.9 0.9 1', [10, 10, 20, 20]),
    'keypoints of another shape': (
        dict(kpt_shape=[3, 2]),
        f'{BOX} 0.5 0.5 2 0.9 0.9 1 1',
        ('invalid-label', '12 numbers are neither a class, a box and 6 values of kpt_shape'),
    ),
    'four corners': ({}, CORNERS, [20, 10, 20, 20], FOUR),
    'four corners, the last one beyond the border': (  # as a line of DOTA, whose ninth word is a class
        {},
        f'{CORNERS.rpartition(" ")[0]} -0.001',
        [20, -0.064, 20, 30.064],
        FOUR,
    ),
    'three corners': ({}, ' '.join(CORNERS.split()[:7]), [30, 10, 10, 20]),
    'names with keys as text': (dict(names={'1': 'dog', '0': 'cat'}), BOX, [10, 10, 20, 20]),
    'home of another user': (dict(path='~x/ds'), BOX, [10, 10, 20, 20]),
    'folders of another machine': (dict(train='/content/x-1/ds/train', val='x-1/val'), BOX, [10, 10, 20, 20]),
    'keys in any case': (dict(train=None, Train='train', NC=2), BOX, [10, 10, 20, 20]),
    'nc as text': (dict(nc='2'), BOX, [10, 10, 20, 20]),
    'decimal commas': (
        {},
        BOX.replace('.', ','),
        ('invalid-label', "'0 0,208333 0,3125 0,208333 0,3125' is not a list of numbers"),
    ),
    'name': (
        {},
        BOX.replace('0 ', 'cat ', 1),
        ('invalid-label', "'cat 0.208333 0.3125 0.208333 0.3125' is not a list of numbers"),
    ),
    'one class of two': ({}, BOX.replace('0 ', '1 ', 1), [10, 10, 20, 20]),
    'path of this folder elsewhere': (dict(path='../datasets/data'), BOX, [10, 10, 20, 20]),
    'pixels': ({}, '0 1.5 0.5 0.1 0.1', ('label-outside-image', '1.5 is not between 0 and 1')),
    'class': ({}, '2 0.5 0.5 0.1 0.1', ('unknown-class', 'class 2 is not one of the 2 of data.yaml')),
    'four numbers': ({}, '0 0.5 0.5 0.1', ('invalid-label', '4 numbers are neither a class and a box')),
}


def write_labels(root, line):
    for path in list_images(root):
        path.with_suffix('.txt').write_text(f'{line}\n{line}\n')  # the second one is a repeated object


YAMLS = {
    'wrong path': (dict(train='pictures/train'), "data.yaml: train='pictures/train' not found; looked for .*yolo/pict"),
    'no images': (dict(val='labels/val'), "data.yaml: val='labels/val' has no images"),
    'class count': (dict(nc=3), r'data.yaml: nc=3, but names has 4 classes: 4 \(disk, square, triangle, star\)'),
    'names': (dict(names='disk'), 'data.yaml: names must be a list of names, or a mapping whose keys count from 0'),
    'names in names': (dict(names=[{0: 'disk'}, {1: 'star'}]), 'names must be a list of names, or a mapping'),
}


@pytest.mark.parametrize('kind', YOLO)
def test_yolo_lines_are_read_by_their_meaning(root, kind):
    more, line, expected, *note = YOLO[kind]
    write_labels(root, line)
    (root / 'data.yaml').write_text(
        yaml.safe_dump(dict(train='train', val='val', names=['cat', 'dog']) | more, sort_keys=False)
    )
    splits, found = judge(root)
    if isinstance(expected, tuple):
        code, text = expected
        assert finding(found, code, 'train').items[0].startswith(f'train/0.txt, line 1: {text}')
        return
    (one,) = (a for a in splits['train'].content['annotations'] if a['image_id'] == 1)
    assert one['bbox'] == pytest.approx(expected, abs=0.01)
    assert [category['name'] for category in splits['train'].content['categories']] == ['cat', 'dog']
    said = {one.code for one in found if one.where in ('train', '')} - {'no-mask', 'zero-instance-category'}
    assert said == {'repeated-object', *note}


@pytest.mark.parametrize('first', ['cat', 'background'])
def test_labels_that_may_count_from_1_are_named(root, first):
    for i, path in enumerate(list_images(root)):
        path.with_suffix('.txt').write_text(BOX.replace('0 ', f'{i % 2 + 1} ', 1))
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(train='train', val='val', names=[first, 'dog', 'cow'])))
    said = [(one.where, one.items) for one in judge(root)[1] if one.code == 'classes-from-1']
    assert said == ([('train', ('cat',)), ('val', ('cat',))] if first == 'cat' else [])


def test_a_test_folder_without_images(root):
    write_labels(root, BOX)
    for folder in ('train', 'val'):
        (root / 'labels').mkdir(exist_ok=True)
        (root / 'images').mkdir(exist_ok=True)
        (root / folder).rename(root / 'images' / folder)
        (root / 'labels' / folder).mkdir()
        for path in (root / 'images' / folder).glob('*.txt'):
            path.rename(root / 'labels' / folder / path.name)
    (root / 'data.yaml').write_text('train: images/train\nval: images/val\ntest: x/test\nnames: [cat]\n')
    splits, found = judge(root)
    assert 'repeated-object' in codes(found, 'train')
    assert list(splits) == ['train', 'val']


def test_oriented_boxes_have_no_masks(root):
    write_labels(root, CORNERS)
    content = dict(train='train', val='val', names=['cat'], task='obb')
    (root / 'data.yaml').write_text(yaml.safe_dump(content), encoding='utf-16')
    splits = find_splits(root)
    assert objects(splits['val'])['4.png'] == (96, 64, ('cat', 20, 10, 20, 20, pytest.approx(400, abs=0.01)))
    assert not any('segmentation' in one for one in splits['val'].content['annotations'])


def test_names_are_those_that_were_written(root):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text('train: train\nval: val\nnames: [NO, 1.10]\n')
    assert [one['name'] for one in find_splits(root)['val'].content['categories']] == ['NO', '1.10']


def test_names_that_are_ambiguous_are_refused(root):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text('train: train\nval: val\nnames: [cat, dog]\n')
    (root / 'dataset.yaml').write_text('train: train\nval: val\nnames: [dog, cat]\n')
    with pytest.raises(Refusal, match=r'data\.yaml and .*dataset\.yaml differ: name the one that is meant'):
        find_splits(root)


def test_labels_of_train_decide_on_the_format(root):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text('train: train\nval: val\nnames: [cat]\n')
    content = dict(images=[dict(id=1, file_name='4.png', width=96, height=64)], categories=[dict(id=7, name='dog')])
    content['annotations'] = [dict(id=1, image_id=1, category_id=7, bbox=[1, 1, 9, 9])]
    (root / 'instances_val.json').write_text(json.dumps(content))
    for needed in ((), ('train', 'val'), ('val',)):
        assert objects(find_splits(root, needed)['val'])['4.png'][2][0] == 'cat'
    assert list(find_splits(root, ('train',))) == ['train', 'val']


@pytest.mark.parametrize('names', [('images', 'labels'), ('Images', 'Labels'), ('Images', 'labels')])
def test_labels_beside_images(root, names):
    for name in ('train', 'val'):
        (root / name).rename(root / 'x')
        (root / name).mkdir()
        (root / 'x').rename(root / name / names[0])
        (root / name / names[1]).mkdir()
        for path in (root / name / names[0]).iterdir():
            (root / name / names[1] / f'{path.stem}.txt').write_text(BOX)
    os.link(root / 'train' / names[0] / '0.png', root / 'train' / names[0] / '0.jpg')
    content = dict(train=f'../train/{names[0]}', val=f'../val/{names[0]}', test='../test/images', names=['cat'])
    (root / 'data.yaml').write_text(yaml.safe_dump(content))
    (root / 'train' / 'metrics.json').write_text('{"mAP": 1}')  # not COCO's
    splits = find_splits(root)
    assert objects(splits['val'])['4.png'] == (96, 64, ('cat', 10, 10, 20, 20, pytest.approx(400, abs=0.01)))


def test_yolo_of_label_studio_has_no_yaml_file(root):
    (root / 'classes.txt').write_text('cat\ndog\n')
    (root / 'images').mkdir()
    for name in ('train', 'val'):
        (root / name).rename(root / 'images' / name)
    write_labels(root, BOX)
    for path in list(root.rglob('[0-9].txt')):
        target = root / 'labels' / path.relative_to(root / 'images')
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    found = find_splits(root)
    assert objects(found['val'])['4.png'] == (96, 64, ('cat', 10, 10, 20, 20, pytest.approx(400, abs=0.01)))


def test_a_yaml_file_is_read_inside_its_folder(root, monkeypatch):
    write_labels(root, BOX)
    for path in list(root.rglob('*.txt')) + list(root.rglob('*.png')):
        kind = 'labels' if path.suffix == '.txt' else 'images'
        (root / kind / path.parent.name).mkdir(parents=True, exist_ok=True)
        path.rename(root / kind / path.parent.name / path.name)
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(train='images/train', val='images/val', names=['cat'])))
    monkeypatch.chdir(root)
    for place in ('.', 'data.yaml', root):
        assert objects(find_splits(place)['val'])['4.png'][2][0] == 'cat'


@pytest.mark.parametrize('inner', [True, False])
def test_a_yaml_file_without_splits_has_the_usual_folders(root, inner):
    write_labels(root, BOX)
    for old, split in (('train', 'train'), ('val', 'Valid')):
        for path in list((root / old).iterdir()):
            kind = 'labels' if path.suffix == '.txt' else 'images'
            target = root / (f'{kind}/{split}' if inner else f'{split}/{kind}') / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(nc=1, names=['cat'])))  # of supervision 0.31
    splits, found = judge(root)
    assert [len(objects(splits[name])) for name in ('train', 'val')] == [4, 4]
    assert objects(splits['val'])['4.png'] == (96, 64, ('cat', 10, 10, 20, 20, pytest.approx(400, abs=0.01)))
    assert found.of('error') == []


def test_labels_without_an_image_are_named(root):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(train='train', val='val', names=['cat'])))
    (root / 'train' / '0.png').rename(root / 'train' / '0.heic')
    (root / 'train' / '1.png').unlink()
    _, found = judge(root)
    assert finding(found, 'label-without-image').items == (f'{root}/train/0.txt', f'{root}/train/1.txt')
    assert finding(found, 'unread-files').text == 'files of formats that are not read: 1 .heic'


def test_images_without_labels_are_named(root):
    write_labels(root, BOX)
    (root / 'train' / '3.txt').unlink()
    content = dict(path=str(root), train='train', val='val', names=['cat'])
    (root / 'data.yaml').write_text(yaml.safe_dump(content))
    _, found = judge(root)
    assert finding(found, 'image-without-label').items == (f'{root}/train/3.png',)


@pytest.mark.parametrize('with_polygons', [False, True])
@pytest.mark.parametrize('images', ['images/{}', '{}/images'])
def test_yolo_gives_the_same_objects(coco, tmp_path, cache, with_polygons, images):
    root = write_yolo(coco, tmp_path / 'yolo', with_polygons, images)
    actual, expected = find_splits(root), find_splits(coco)
    assert list(actual) == ['train', 'val']
    for name, split in actual.items():
        assert split.ann_file.is_relative_to(cache)
        assert json.loads(split.ann_file.read_text()) == split.content
        assert_same_objects(split, expected[name], with_polygons)
        assert [category['name'] for category in split.content['categories']] == NAMES
    assert ('no-mask' in codes(judge(root)[1])) != with_polygons


def test_yolo_paths_of_windows_and_labels_next_to_images(coco, tmp_path):
    root = write_yolo(coco, tmp_path / 'yolo', train=r'images\train')
    right = [a['bbox'] for a in find_splits(root)['train'].content['annotations']]
    label = sorted((root / 'labels' / 'train').iterdir())[0]
    label.rename(root / 'images' / 'train' / label.name)
    assert [a['bbox'] for a in find_splits(root)['train'].content['annotations']] == right


@pytest.mark.parametrize('fault', YAMLS)
def test_faults_of_data_yaml_are_named(coco, tmp_path, fault):
    change, message = YAMLS[fault]
    with pytest.raises(Refusal, match=message):
        find_splits(write_yolo(coco, tmp_path / 'yolo', **change))


def test_faults_of_labels_are_named_with_file_and_line(coco, tmp_path):
    root = write_yolo(coco, tmp_path / 'yolo')
    label = sorted((root / 'labels' / 'val').iterdir())[0]
    label.write_text('0 0.5 0.5 0.1 0.1\n\n4 0.5 0.5 0.1 0.1\n')
    one = finding(judge(root)[1], 'unknown-class', 'val')
    assert one.items == (f'val/{label.name}, line 3: class 4 is not one of the 4 of data.yaml',)


def test_labels_that_were_corrected_within_one_date_and_size(root):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text('train: train\nval: val\nnames: [cat]\n')
    before = find_splits(root)['val']
    assert find_splits(root)['val'].ann_file == before.ann_file
    path, other = root / 'val' / '4.txt', BOX.replace('0.3125', '0.4125')
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(f'{other}\n{other}\n')
    os.utime(path, ns=times)
    after = find_splits(root)['val']
    assert after.ann_file != before.ann_file
    assert objects(after)['4.png'][2][2] != objects(before)['4.png'][2][2]


@pytest.mark.parametrize('width', [3, 9])
def test_anchors_that_multiply_are_refused(root, width):
    """300 bytes of them may expand to gigabytes; a list that is shared is read."""
    write_labels(root, BOX)
    lines = ['a: &a [cat]', *(f'{b}: &{b} [{", ".join([f"*{a}"] * width)}]' for a, b in pairwise('abcdefghi'))]
    text = 'train: train\nval: val\nnames: &n [cat]\nsame: *n\n'
    (root / 'data.yaml').write_text(text)
    assert list(find_splits(root)) == ['train', 'val']
    (root / 'data.yaml').write_text('\n'.join(lines) + '\n' + text)
    with pytest.raises(Refusal, match='cannot be read as YAML: it has more than 10 aliases'):
        find_splits(root)


def test_a_cache_that_cannot_be_written_is_named(root, tmp_path, monkeypatch):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text('train: train\nval: val\nnames: [cat]\n')
    (tmp_path / 'file').touch()
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'file'))
    with pytest.raises(UserError, match=r'which TOKENNORM_CACHE sets: .*Not a directory'):
        find_splits(root)


def test_lines_that_begin_with_a_point_are_relative_to_their_file(root):
    write_labels(root, BOX)
    for name in ('0.png', '0.txt'):
        shutil.copy(root / 'train' / name, root / name)
    (root / 'data.yaml').write_text('train: train/list.txt\nnames: [cat]\n')
    for line, name in (('./0.png', 'train/0.png'), ('0.png', '0.png')):
        (root / 'train' / 'list.txt').write_text(line)
        assert [one['file_name'] for one in find_splits(root, ('train',))['train'].content['images']] == [name]


@pytest.mark.parametrize('place', ['.', './', 'train/..'])
def test_images_next_to_the_yaml_file(root, place):
    write_labels(root, BOX)
    (root / 'data.yaml').write_text(f'train: {place}\nnames: [cat]\n')
    assert len(find_splits(root, ('train',))['train'].content['images']) == 8
