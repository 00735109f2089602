"""Annotations of every program become one canonical form, or one line that names the file and the remedy."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as run_lengths

from tests.helpers.data_folders import objects
from tests.helpers.judging import codes, finding, judge
from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.datasets.discovery import find_splits
from tokennorm.findings import Refusal

WIDE = [10, 10, 40, 20]


def coco(first=0):
    """Two objects per image: a cat at (10, 10) and a dog at (40, 20), of 20 x 20 pixels."""
    images = [dict(id=i + 1, file_name=f'{first + i}.png', width=96, height=64) for i in range(4)]
    annotations = [
        dict(id=2 * i + j + 1, image_id=i + 1, category_id=j + 1, bbox=[*corner, 20, 20], area=400, iscrowd=0)
        for i in range(4)
        for j, corner in enumerate([(10, 10), (40, 20)])
    ]
    return dict(images=images, annotations=annotations, categories=[dict(id=1, name='cat'), dict(id=2, name='dog')])


def shift_ids(content, change):
    for one in content['images']:
        one['id'] = change(one['id'])
    for one in content['annotations']:
        one['image_id'] = change(one['image_id'])


def swap_categories(content):
    content['categories'].reverse()


def drop(*keys):
    return lambda c: [one.pop(key) for one in c['annotations'] for key in keys]


def polygons(content):
    for one in content['annotations']:
        x, y, w, h = one.pop('bbox')
        one['segmentation'] = [[x, y, x + w, y, x + w, y + h, x, y + h], [x, y, x + 1, y]]
        del one['area']


def run_length_masks(content):
    """Packed, and of half of the objects as lists of counts."""
    for one in content['annotations']:
        x, y, w, h = one.pop('bbox')
        del one['area']
        mask = np.zeros((64, 96), np.uint8, order='F')
        mask[y : y + h, x : x + w] = 1
        one['segmentation'] = dict(size=[64, 96], counts=run_lengths.encode(mask)['counts'].decode())
        if one['id'] % 2:
            edges = np.flatnonzero(np.diff(mask.ravel('F')))
            one['segmentation']['counts'] = np.diff(edges, prepend=-1, append=mask.size - 1).tolist()


def nothing(content):
    """What is written is right."""


def group(content):
    content['categories'].insert(0, dict(id=0, name='animals', supercategory='none'))
    for one in content['categories'][1:]:
        one['supercategory'] = 'animals'


COCO = {  # a change of both splits, and the code of what is said; what is read stays the same
    'annotation ids from 0': (lambda c: [one.update(id=one['id'] - 1) for one in c['annotations']], None),
    'ids are missing': (drop('id'), None),
    'image ids from 0': (lambda c: shift_ids(c, lambda i: i - 1), None),
    'UUID': (lambda c: shift_ids(c, lambda i: f'{i:032x}'), None),
    'negative ids': (lambda c: shift_ids(c, lambda i: -i), None),
    'text and number': (lambda c: [one.update(image_id=str(one['image_id'])) for one in c['annotations']], None),
    'float ids': (lambda c: [one.update(image_id=float(one['image_id'])) for one in c['annotations']], None),
    'no area, no iscrowd': (drop('area', 'iscrowd'), None),
    'area 0': (lambda c: [one.update(area=0) for one in c['annotations']], None),
    'no bbox, stray piece': (polygons, 'short-polygon'),
    'no bbox, run lengths': (run_length_masks, None),
    'large ids': (lambda c: shift_ids(c, lambda i: i + 2**60), None),
    'UTF-8 with a mark': (nothing, None),
    'UTF-16': (nothing, None),
    'size -1': (lambda c: [one.update(width=-1, height=None) for one in c['images']], None),
    'backslashes': (
        lambda c: [one.update(file_name=rf'C:\export\{one["file_name"]}') for one in c['images']],
        'renamed-file',
    ),
    'URLs': (
        lambda c: [one.update(file_name=f'/data/local-files/?d=x%20y/{one["file_name"]}') for one in c['images']],
        'renamed-file',
    ),
    'URLs of LVIS': (
        lambda c: [one.update(coco_url=f'http://x.org/{one.pop("file_name")}') for one in c['images']],
        'renamed-file',
    ),
    'other case': (
        lambda c: [one.update(file_name=one['file_name'].upper()) for one in c['images']],
        'renamed-file',
    ),
    'bbox of zeros': (
        lambda c: (polygons(c), [one.update(bbox=[0, 0, 0, 0]) for one in c['annotations']]),
        'short-polygon',
    ),
    'object twice': (
        lambda c: c['annotations'].extend([dict(one, id=one['id'] + 50) for one in c['annotations'][:3]]),
        'repeated-object',
    ),
    'grouping category': (group, 'category-group'),
}


def write(root, change=nothing, val=None, encoding='utf-8'):
    for name, first in (('train', 0), ('val', 4)):
        content = coco(first)
        (val if val and name == 'val' else change)(content)
        (root / name / 'labels.json').write_text(json.dumps(content), encoding=encoding)
    return root


@pytest.mark.parametrize('kind', COCO)
def test_coco_of_other_programs_is_normalized(root, kind):
    write(root)
    expected = {name: objects(found) for name, found in find_splits(root).items()}
    assert expected['train']['0.png'] == (96, 64, ('cat', 10, 10, 20, 20, 400), ('dog', 40, 20, 20, 20, 400))
    change, code = COCO[kind]
    encoding = {'UTF-8 with a mark': 'utf-8-sig', 'UTF-16': 'utf-16'}.get(kind, 'utf-8')
    before = {path: path.read_bytes() for path in write(root, change, encoding=encoding).rglob('*.json')}
    splits, found = judge(root)
    assert {name: objects(found) for name, found in splits.items()} == expected
    assert json.loads(splits['train'].ann_file.read_text()) == splits['train'].content
    assert found.of('error') == []
    said = {one.code for one in found if one.where == 'train'} - {'no-mask'}
    assert code in said if code else said == set()
    for content in (one.content for one in splits.values()):
        for kind in ('images', 'annotations', 'categories'):
            ids = [one['id'] for one in content[kind]]
            assert all(type(one) is int and one > 0 for one in ids)
            assert len(set(ids)) == len(ids)
        assert {one['image_id'] for one in content['annotations']} <= {one['id'] for one in content['images']}
    assert {path: path.read_bytes() for path in root.rglob('*.json')} == before


def test_a_canonical_file_is_used_as_it_is(root, tmp_path):
    for name, found in find_splits(write(root)).items():
        assert found.ann_file == root / name / 'labels.json'
    assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize('only_files', [False, True])
def test_results_have_the_original_ids(root, tmp_path, only_files):
    def change(content):
        shift_ids(content, lambda i: f'image {i}')
        content['categories'] = [dict(id=7, name='cat'), dict(id=3, name='dog')]
        for one in content['annotations']:
            one['category_id'] = {1: 7, 2: 3}[one['category_id']]

    import torch  # here: the other tests of this file do without mmdet

    from tokennorm.evaluation.coco_metric import CocoMetric

    found = find_splits(write(root, change))['val']
    expected = [dict(original_id=7, id=1, name='cat'), dict(original_id=3, id=2, name='dog')]
    assert found.content['categories'] == expected
    metric = CocoMetric(str(found.ann_file), outfile_prefix=str(tmp_path / 'out'), format_only=only_files)
    metric.dataset_meta = dict(classes=('cat', 'dog'))
    for image in found.content['images']:
        boxes = torch.tensor([[10.0, 10, 30, 30], [40, 20, 60, 40]])
        instances = dict(bboxes=boxes, scores=torch.ones(2), labels=torch.arange(2))
        metric.process({}, [dict(img_id=image['id'], ori_shape=(64, 96), pred_instances=instances)])
    assert only_files == (not (values := metric.evaluate(4)))
    assert only_files or values['coco/bbox_mAP'] == 1
    results = json.loads((tmp_path / 'out.bbox.json').read_text())
    assert [(one['image_id'], one['category_id']) for one in results][:3] == [
        ('image 1', 7),
        ('image 1', 3),
        ('image 2', 7),
    ]


@pytest.mark.parametrize('change', [swap_categories, lambda c: c['categories'].pop()], ids=['order', 'lacks'])
def test_classes_of_val_are_matched_by_name(root, change):
    def last_class_unused(content):
        change(content)
        names = [one['id'] for one in content['categories']]
        content['annotations'] = [one for one in content['annotations'] if one['category_id'] in names]

    splits, found = judge(write(root, val=last_class_unused))
    for split in splits.values():
        assert [one['name'] for one in split.content['categories']] == ['cat', 'dog']
    assert objects(splits['val'])['4.png'][2] == ('cat', 10, 10, 20, 20, 400)
    assert found.of('error') == []


def test_lists_of_the_classes_that_occur_are_united(root):
    def only(index, name):  # as pylabel and globox write them
        def change(content):
            (kept,) = (one for one in content['categories'] if one['id'] == index)
            content['annotations'] = [one for one in content['annotations'] if one['category_id'] == index]
            content['categories'] = [dict(kept, id=7, name=name)]
            for one in content['annotations']:
                one['category_id'] = 7

        return change

    splits, found = judge(write(root, only(2, 'dog'), val=only(1, 'cat')))
    for split in splits.values():
        assert [one['name'] for one in split.content['categories']] == ['dog', 'cat']
    assert objects(splits['train'])['0.png'][2:] == (('dog', 40, 20, 20, 20, 400),)
    assert objects(splits['val'])['4.png'][2:] == (('cat', 10, 10, 20, 20, 400),)
    assert 'other-classes' not in codes(found)
    assert finding(found, 'unlearned-classes').items == ('cat',)


@pytest.mark.parametrize('shift', [-1, 1])
def test_category_ids_of_another_origin_are_refused(root, shift):
    def change(content):
        for one in content['annotations']:
            one['category_id'] += shift

    one = finding(judge(write(root, change))[1], 'shifted-category-ids', 'train')
    assert re.search(rf'category_id .* {1 + shift} to {2 + shift}, .* are 1 to 2: add {-shift} to each', one.text)
    assert 'orphan-category-id' in codes(judge(root, allow=['shifted-category-ids'])[1])


def test_ids_that_are_not_listed_stay_so_when_others_are_renumbered(root):
    def change(content):
        shift_ids(content, lambda i: i - 1)
        content['annotations'][0]['image_id'] = 4  # ids are 0 to 3, and become 1 to 4
        for one in content['categories']:
            one['id'] -= 1
        for one in content['annotations'][1:]:
            one['category_id'] -= 1
        content['annotations'][0]['category_id'] = 2

    splits, found = judge(write(root, change))
    assert len(objects(splits['train'])['3.png']) == 4
    assert finding(found, 'orphan-image-id', 'train').items == ('annotation 1',)


def test_a_mask_of_another_size_gives_no_box(root):
    def turn(content):
        run_length_masks(content)
        for one in content['annotations']:
            one['segmentation']['size'].reverse()

    found = judge(write(root, turn))[1]
    assert ('annotations without a valid bbox', 8) in [(one.text, len(one.items)) for one in found]


def test_tags_of_whole_images_are_not_classes(root):
    box = '<box label="cat" xtl="10" ytl="10" xbr="30" ybr="30"/><tag label="day"/>'
    labels = '<label><name>cat</name></label><label><name>day</name><type>tag</type></label>'
    for split, first in (('train', 0), ('val', 4)):
        images = ''.join(f'<image name="{n}.png" width="96" height="64">{box}</image>' for n in range(first, first + 4))
        (root / split / 'annotations.xml').write_text(f'<annotations><meta>{labels}</meta>{images}</annotations>')
    splits, found = judge(root)
    assert [one['name'] for one in splits['train'].content['categories']] == ['cat']
    assert objects(splits['val'])['4.png'] == (96, 64, ('cat', 10, 10, 20, 20, 400))
    assert 'no-mask' in codes(found)
    (root / 'train' / 'annotations.xml').write_text('<annotations><image><polygon points="1,x"/></image></annotations>')
    with pytest.raises(Refusal, match=r"annotations.xml cannot be read: could not convert string to float: 'x'"):
        judge(root)


def test_rotated_boxes_of_cvat_become_upright(root):
    def turn(content):
        content['annotations'][0] |= dict(bbox=[10, 10, 40, 20], attributes=dict(occluded=False, rotation=330.0))
        content['annotations'][1] |= dict(bbox=WIDE, attributes=dict(occluded=True, rotation=90.0))
        content['annotations'][2] |= dict(attributes=dict(occluded=True, rotation=0.0))

    splits, found = judge(write(root, turn))
    boxes = [one['bbox'] for one in splits['train'].content['annotations'][:3]]
    wide, high = 40 * 0.75**0.5 + 10, 20 * 0.75**0.5 + 20
    np.testing.assert_allclose(
        boxes, [[30 - wide / 2, 20 - high / 2, wide, high], [20, 0, 20, 40], [10, 10, 20, 20]], atol=1e-9
    )
    first, second = splits['train'].content['annotations'][:2]
    assert first['attributes'] == dict(occluded=False, rotation=0)
    assert second['area'] == pytest.approx(800)
    assert len(finding(found, 'rotated-box', 'train').items) == 2


@pytest.mark.parametrize('box', [[10, 10, 0, 20], [30, 30, -20, -20]])
def test_a_box_without_width_is_named(root, box):
    """COCO without areas, as YOLO is: the box has the area 0."""

    def narrow(content):
        for one in content['annotations']:
            del one['area']
        content['annotations'][0].update(bbox=box, segmentation=[])

    splits, found = judge(write(root, narrow))
    assert splits['train'].content['annotations'][0]['area'] == 0
    assert found.of('error') == []
    assert 'degenerate-bbox' in codes(found)


def test_crowds_as_text(root):
    def crowds(content):
        for one, value in zip(content['annotations'], ['1', '0', True, False, 'true', None, 1, 0], strict=True):
            one['iscrowd'] = value

    annotations = find_splits(write(root, crowds))['train'].content['annotations']
    assert [int(one['iscrowd']) for one in annotations] == [1, 0, 1, 0, 1, 0, 1, 0]


def test_masks_of_cvats_brush_are_objects(root):
    """It writes them as run lengths with iscrowd=1, beside polygons of iscrowd=0."""

    def brush(content):
        run_length_masks(content)
        for one in content['annotations'][:3]:
            one |= dict(iscrowd=1, attributes=dict(occluded=False))
        content['annotations'][0].update(segmentation=[], bbox=[10, 10, 20, 20])  # a crowd of another origin
        content['annotations'][1]['iscrowd'] = '1'
        content['annotations'][3]['iscrowd'] = 1  # a crowd of COCO

    splits, found = judge(write(root, brush))
    assert [one['iscrowd'] for one in splits['train'].content['annotations'][:5]] == [1, 0, 0, 1, 0]
    assert finding(found, 'crowd-as-object', 'train').items == ('annotation 2', 'annotation 3')


@pytest.mark.parametrize('supercategory', ['common-objects', 'animals'])
def test_objects_of_several_pieces_are_single(root, supercategory):
    def several(content):
        content['annotations'][0]['iscrowd'] = 1
        for one in content['categories']:
            one['supercategory'] = supercategory

    splits, found = judge(write(root, several))
    of_supervision = supercategory == 'common-objects'
    assert [one['iscrowd'] for one in splits['train'].content['annotations'][:2]] == [int(not of_supervision), 0]
    assert ('crowd-as-object' in codes(found)) == of_supervision


@pytest.mark.parametrize('mask', [None, {}, []], ids=str)
def test_rotated_boxes_without_a_mask(root, mask):
    def turn(content):
        content['annotations'][0] |= dict(
            bbox=[10, 10, 40, 20], attributes=dict(occluded=True, rotation=90.0), segmentation=mask
        )

    assert find_splits(write(root, turn))['train'].content['annotations'][0]['bbox'] == pytest.approx([20, 0, 20, 40])


def test_boxes_around_a_turned_polygon_stay(root):
    polygon = [30, 10, 50, 20, 30, 30, 10, 20]

    def turned(content):
        content['annotations'][0] |= dict(
            bbox=[10, 10, 40, 20], attributes=dict(occluded=True, rotation=30), segmentation=[polygon]
        )
        content['annotations'][1] |= dict(
            bbox=[10, 10, 40, 20], attributes=dict(occluded=True, rotation=True), segmentation=[]
        )

    annotations = find_splits(write(root, turned))['train'].content['annotations']
    assert [one['bbox'] for one in annotations[:2]] == [[10, 10, 40, 20]] * 2


def test_one_degree_is_a_rotation(root):
    def turned(content):
        content['annotations'][0] |= dict(
            bbox=[10, 10, 40, 20], attributes=dict(occluded=True, rotation=1), segmentation=[]
        )

    box = find_splits(write(root, turned))['train'].content['annotations'][0]['bbox']
    assert box == pytest.approx([9.83, 9.65, 40.34, 20.70], abs=0.01)


@pytest.mark.parametrize('is_used', [False, True], ids=['not used', 'used'])
def test_a_group_with_the_name_of_its_class(root, is_used):
    """Roboflow writes it first, with the name of the project."""

    def group(content):
        content['categories'] = [
            dict(id=0, name='cat', supercategory='none'),
            dict(id=1, name='cat', supercategory='cat'),
            dict(id=2, name='dog', supercategory='cat'),
        ]
        content['annotations'][0]['category_id'] = 1 - is_used

    splits, found = judge(write(root, group))
    if is_used:
        assert finding(found, 'duplicate-entry', 'train').items == ('cat',)
        return
    assert found.of('error') == []
    assert finding(found, 'category-group', 'train').items == ('cat',)
    assert [one['name'] for one in splits['val'].content['categories']] == ['cat', 'dog']
    assert splits['val'].columns.objects_by_class == dict(cat=4, dog=4)


def test_two_classes_in_one_place_are_two_objects():
    content = dict(
        images=[dict(id=1, file_name='a.png', width=64, height=48)],
        categories=[dict(id=i, name=name) for i, name in ((1, 'rider'), (2, 'horse'))],
        annotations=[dict(id=i, image_id=1, category_id=i, bbox=[4, 4, 20, 20], area=400, iscrowd=0) for i in (1, 2)],
    )
    assert normalize(dict(train=content), dict(train=Path()))['train'] is content
