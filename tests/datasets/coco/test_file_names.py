"""File names of annotations are matched with the files on disk: accents, folders, ambiguous names."""

import json
import os
import unicodedata

from tests.helpers.judging import finding, judge


def coco(first=0):
    """Two objects per image: a cat at (10, 10) and a dog at (40, 20), of 20 x 20 pixels."""
    images = [dict(id=i + 1, file_name=f'{first + i}.png', width=96, height=64) for i in range(4)]
    annotations = [
        dict(id=2 * i + j + 1, image_id=i + 1, category_id=j + 1, bbox=[*corner, 20, 20], area=400, iscrowd=0)
        for i in range(4)
        for j, corner in enumerate([(10, 10), (40, 20)])
    ]
    return dict(images=images, annotations=annotations, categories=[dict(id=1, name='cat'), dict(id=2, name='dog')])


def nothing(content):
    """What is written is right."""


def write(root, change=nothing, val=None, encoding='utf-8'):
    for name, first in (('train', 0), ('val', 4)):
        content = coco(first)
        (val if val and name == 'val' else change)(content)
        (root / name / 'labels.json').write_text(json.dumps(content), encoding=encoding)
    return root


def test_accents_of_macos(root):
    (root / 'train' / '0.png').rename(root / 'train' / unicodedata.normalize('NFD', 'é.png'))
    _, found = judge(write(root, lambda c: c['images'][0].update(file_name='é.png'), val=nothing))
    assert found.of('error') == []


def test_folders_with_the_same_names_are_named(root):
    (root / 'train' / 'masks').mkdir()
    (root / 'train' / 'images').mkdir()
    for i in range(4):
        os.link(root / 'train' / f'{i}.png', root / 'train' / 'masks' / f'{i}.png')
        (root / 'train' / f'{i}.png').rename(root / 'train' / 'images' / f'{i}.png')
    splits, found = judge(write(root))
    assert splits['train'].image_dir == root / 'train' / 'images'
    assert finding(found, 'ambiguous-folder').items == (f'{root}/train/masks',)


def test_a_name_that_may_mean_several_files_stays_missing(root):
    for i in range(2):
        (root / f'copy{i}').mkdir()
        os.link(root / 'train' / '0.png', root / f'copy{i}' / 'x.png')
    write(root, lambda c: c['images'][0].update(file_name='elsewhere/x.png'))
    assert [one.items for one in judge(root)[1] if one.code == 'unreadable-image'] == [('elsewhere/x.png',)] * 2
