"""Each fault in a dataset is found and named, and a sound dataset has none."""

import copy
import io
import json
import re
import shutil
from dataclasses import replace

import pytest
from pycocotools import mask as coco_masks

from experiments.shapes import make_shapes_dataset
from tests.helpers.coco_files import edit
from tests.helpers.judging import codes, finding
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.coco.masks import NOWHERE, examine
from tokennorm.datasets.discovery import find_splits
from tokennorm.findings import RULES, Findings, judging


@pytest.fixture(scope='module')
def sound(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=8, num_val=6, image_size=48)


@pytest.fixture
def data(sound, tmp_path):
    """A copy of a sound dataset, to damage."""
    return shutil.copytree(sound, tmp_path / 'data')


def inspect(root):
    with judging(Findings()) as found:
        inspected = inspect_splits(find_splits(root))
    return inspected, found


def test_a_sound_dataset_is_counted_and_not_complained_of(data):
    inspected, found = inspect(data)
    assert list(found) == []
    content = json.loads((data / 'annotations' / 'train.json').read_text())
    per_image = [sum(a['image_id'] == image['id'] for a in content['annotations']) for image in content['images']]
    rows = [line.split() for line in inspected.table.splitlines()]
    assert ['train', *map(str, (8, per_image.count(0), sum(per_image), 0, max(per_image)))] in rows
    disks = sum(a['category_id'] == content['categories'][0]['id'] for a in content['annotations'])
    assert ['disk', str(disks)] in [row[:2] for row in rows]
    assert inspected.most_objects == max(
        max(sum(a['image_id'] == i['id'] for a in c['annotations']) for i in c['images'])
        for c in (json.loads(path.read_text()) for path in (data / 'annotations').glob('*.json'))
    )
    assert inspected.lines(found)[-2:] == ['No problems found.', '']


def first(content):
    return content['annotations'][0]


def test_classes_that_are_never_learned_are_named(data):
    def rename(content):
        content['categories'][1]['name'] = 'dsik'  # instead of disk

    for split in ('train', 'val'):
        edit(data, split, rename)
    edit(data, 'train', lambda c: [a.update(category_id=1) for a in c['annotations'] if a['category_id'] == 2])
    _, found = inspect(data)
    assert [(one.code, one.where, one.items) for one in found] == [
        ('zero-instance-category', 'train', ('dsik',)),
        ('unlearned-classes', 'val', ('dsik (did you mean disk?)',)),
    ]
    splits = find_splits(data)
    of_test = dict(val=replace(splits['train'], name='val'), test=replace(splits['val'], name='test'))
    with judging(Findings()) as found:
        inspect_splits(of_test)
    assert 'unlearned-classes' not in codes(found)  # the detector learned neither


def test_run_lengths_that_do_not_add_up_are_never_decoded():
    for counts in ([5, 3, 4], coco_masks.frPyObjects(dict(size=[3, 4], counts=[5, 3, 4]), 3, 4)['counts'].decode()):
        assert examine(dict(size=[3, 4], counts=counts), [3, 4]) == ('', (1, 0, 3, 3))
    for counts in ([13, -1], [11.5, 0.5], [True, 11], [5, 3, 5], '/', '5P', 'PPPPPPPP0', '11O', ''):
        assert examine(dict(size=[3, 4], counts=counts), [3, 4]) == ('invalid-mask', NOWHERE)


def test_crowds_are_counted_apart(data):
    content = edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations'][:5]])
    objects = len(content['annotations']) - 5
    assert re.search(rf'^train +8 +\d+ +{objects} +5 ', inspect(data)[0].table, re.MULTILINE)


@pytest.mark.parametrize('mask', [dict(size=[48, 48], counts=[2304]), []], ids=['run lengths', 'box'])
def test_more_crowds_with_run_lengths_than_coco_has_are_named(data, mask):
    def mark(content):
        for i, one in enumerate(content['annotations']):
            one.update(iscrowd=int(i <= count // 20))
            if one['iscrowd']:
                one.update(segmentation=mask)

    count = len(json.loads((data / 'annotations' / 'train.json').read_text())['annotations'])
    edit(data, 'train', mark)
    assert ('many-crowds' in codes(inspect(data)[1])) == bool(mask)


def encoded(image, kind, **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def test_an_image_in_two_splits_is_found_under_another_name(data):
    train, val = sorted((data / 'images/train').iterdir())[3], sorted((data / 'images/val').iterdir())[5]
    val.write_bytes(train.read_bytes())
    shared = 'shared-images', (f'{train.name} = {val.name}',)
    assert [(one.code, one.items) for one in inspect(data)[1]] == [shared]
    val.with_name('new.jpg').write_bytes(val.read_bytes())
    edit(data, 'val', lambda c: c['images'].append(dict(c['images'][0], id=10**6, file_name='new.jpg')))
    twice = 'same-content', (f'{val.name} = new.jpg',)
    assert [(one.code, one.items) for one in inspect(data)[1]] == [shared, twice]
    (data / 'images/val/extra.jpg').write_bytes(b'')
    (data / 'images/val/mask.png').write_bytes(b'')
    assert finding(inspect(data)[1], 'unlisted-image').items == ('extra.jpg',)
    listed = [dict(id=1, file_name='extra.jpg', width=9, height=9)]
    unlabeled = json.loads((data / 'annotations/val.json').read_text()) | dict(images=listed, annotations=[])
    (data / 'annotations/test.json').write_text(json.dumps(unlabeled))
    assert 'unlisted-image' not in codes(inspect(data)[1])


def test_findings_name_annotations_and_their_images(data):
    content = edit(data, 'val', lambda c: first(c).update(id=10_000, bbox=[5, 5, 0, 9]))
    image = next(one for one in content['images'] if one['id'] == first(content)['image_id'])
    (one,) = inspect(data)[1]
    assert (one.code, one.where, one.items) == (
        'degenerate-bbox',
        'val',
        (f'annotation 10000 of {image["file_name"]}',),
    )


def test_entries_with_errors_end_the_inspection(data):
    edit(data, 'train', lambda c: (first(c).update(bbox=[1, 2, float('nan'), 4]), c['categories'][0].pop('name')))
    edit(data, 'val', lambda c: first(c).update(bbox=[5, 5, 0, 9]))
    inspected, found = inspect(data)
    assert [(one.code, one.text) for one in found] == [
        ('invalid-entry', 'categories without a valid name'),
        ('invalid-entry', 'annotations without a valid bbox'),
    ]
    assert 'nan' in list(found)[1].items[0]
    assert inspected.table == ''


def test_names_of_classes_that_look_alike(data):
    whole = json.loads((data / 'annotations/val.json').read_text())
    for split in ('train', 'val'):
        edit(data, split, lambda c: c['categories'][0].update(name='Square '))
    assert finding(inspect(data)[1], 'similar-classes').items == ("'Square ' and 'square'",)
    edit(data, 'val', lambda c: c['categories'][0].update(name='square\u200b'))
    one = finding(inspect(data)[1], 'other-classes')
    assert (one.where, one.text) == ('val', RULES['other-classes'].summary)
    assert one.items == ("without 'Square '", "with 'square\\u200b'")
    edit(data, 'train', lambda c: c['categories'][0].update(name='disk'))
    edit(data, 'val', lambda c: c.update(copy.deepcopy(whole)) or c['categories'].append(dict(id=9, name='moon')))
    _, found = inspect(data)
    assert found.of('error') == []
    assert finding(found, 'extra-classes').items == ('moon (0 objects)',)
