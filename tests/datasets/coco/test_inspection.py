"""Each fault in a dataset is found and named, and a sound dataset has none."""

import copy
import io
import json
import re
import shutil
from dataclasses import replace

import pytest
from PIL import Image
from pycocotools import mask as coco_masks

from experiments.shapes import make_shapes_dataset
from tests.helpers.coco_files import edit
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.coco.inspection import inspect_splits, mask_problem


@pytest.fixture(scope='module')
def sound(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=8, num_val=6, image_size=48)


@pytest.fixture
def data(sound, tmp_path):
    """A copy of a sound dataset, to damage."""
    return shutil.copytree(sound, tmp_path / 'data')


def inspect(root):
    return inspect_splits(find_coco_splits(root))


def test_a_sound_dataset_is_counted_and_not_complained_of(data):
    found = inspect(data)
    assert (found.errors, found.warnings) == ([], [])
    content = json.loads((data / 'annotations' / 'train.json').read_text())
    per_image = [sum(a['image_id'] == image['id'] for a in content['annotations']) for image in content['images']]
    row = f'| train | 8 | {per_image.count(0)} | {sum(per_image)} | 0 | {max(per_image)} |'
    assert row in found.table
    disks = sum(a['category_id'] == content['categories'][0]['id'] for a in content['annotations'])
    assert f'| disk | {disks} |' in found.table
    assert found.mask_errors == []


def first(content):
    return content['annotations'][0]


ENTRIES = {
    'missing bbox': (
        lambda c: (first(c).pop('bbox'), first(c).pop('segmentation', None)),
        r'train: annotations without a valid bbox: id \d+ \(bbox=None\)',
    ),
    'NaN': (lambda c: first(c).update(bbox=[1, 2, float('nan'), 4]), r'annotations without a valid bbox: .*nan'),
    'no size': (lambda c: c['images'][0].update(height=0, file_name='gone.jpg'), r'images without a valid height'),
    'no name': (lambda c: c['categories'][0].pop('name'), r'categories without a valid name'),
    'same id': (lambda c: c['images'][1].update(id=c['images'][0]['id']), r'images with the same id'),
    'same id as text': (
        lambda c: c['images'][1].update(id=str(c['images'][0]['id'])),
        r'images with the same id: \d+$',
    ),
    'detectron2': (lambda c: first(c).update(bbox_mode=0), r'annotations without a valid bbox_mode: .*bbox_mode=0'),
    'no images': (lambda c: (c['images'].clear(), c['annotations'].clear()), r'has no images or no categories'),
    'corners': (
        lambda c: [a.update(bbox=[30, 30, 40, 40], segmentation=[[1, 2, 3, 4, 5, 6]]) for a in c['annotations']],
        r'boxes reach beyond their image and would fit as \[x1, y1, x2, y2\]',
    ),
    'no objects': (lambda c: c['annotations'].clear(), r'train: no image has an object'),
}


BOXES = {
    'polygon of another object': (
        lambda c: first(c).update(bbox=[30, 2, 6, 6], area=18, segmentation=[[2, 30, 8, 30, 8, 36]]),
        r'masks outside their box\..*: annotation \d+ of \d+\.jpg$',
    ),
    'background first': (
        lambda c: first(c).update(
            bbox=[9, 9, 8, 8], area=64, segmentation=dict(size=[48, 48], counts=[0, 40 * 48, 8 * 48])
        ),
        r'masks outside their box\..* run lengths by rows\?.*: annotation \d+ of \d+\.jpg$',
    ),
    'no side': (lambda c: first(c).update(bbox=[5, 5, 0, 9]), r'boxes without area .*annotation \d+ of .*\.jpg'),
    'outside': (lambda c: first(c).update(bbox=[48, 5, 9, 9]), r'boxes outside their image, not trained on'),
    'ignore': (lambda c: first(c).update(ignore=1), r'objects marked ignore, not trained on'),
    'partly': (lambda c: first(c).update(bbox=[44, 5, 9, 9], segmentation=[]), r'boxes partly outside their image'),
    'image': (lambda c: first(c).update(image_id=10**6), r'annotations of an image that is not listed'),
    'category': (lambda c: first(c).update(category_id=99), r'annotations of a category that is not listed'),
    'polygon': (
        lambda c: first(c).update(segmentation=[[1, 2, 3, 4]]),
        r'pieces of polygons with fewer than 3 points, left out: 1',
    ),
}


MASKS = {
    'size': (
        lambda c: first(c).update(segmentation=dict(size=[3, 5], counts='0')),
        r'run-length masks whose size or counts are not those of their image: annotation \d+ of \d+\.jpg$',
    ),
    'sum': (
        lambda c: first(c).update(segmentation=dict(size=[48, 48], counts=[9])),
        r'run-length masks whose size or counts are not those of their image: annotation \d+ of \d+\.jpg$',
    ),
    'NaN': (
        lambda c: first(c).update(segmentation=[[1, 2, 3, 4, 5, float('nan')]]),
        r'polygons with values that are not numbers: annotation \d+ of \d+\.jpg$',
    ),
    'far': (
        lambda c: first(c).update(segmentation=[[1, 2, 3, 4, 5, 200]]),
        r'polygons far outside their image: annotation \d+ of \d+\.jpg$',
    ),
    'fractions': (
        lambda c: [a.update(segmentation=[[0.1, 0.1, 0.6, 0.1, 0.6, 0.6]]) for a in c['annotations']],
        r'masks outside their box. Are they fractions, or y before x, or run lengths by rows\?',
    ),
    'huge': (lambda c: first(c).update(segmentation=[[1, 2, 3, 4, 5, 10**400]]), r'polygons far outside their image: '),
    'text': (lambda c: first(c).update(segmentation='[[1, 2, 3, 4, 5, 6]]'), r'segmentations that are neither lists'),
    'missing': (lambda c: first(c).pop('segmentation'), r'annotations without a segmentation: annotation \d+'),
}


KINDS = dict(errors=('train', ENTRIES), warnings=('train', BOXES), mask_errors=('val', MASKS))


@pytest.mark.parametrize(('kind', 'fault'), [(kind, fault) for kind, (_, faults) in KINDS.items() for fault in faults])
def test_faults_are_named(data, kind, fault):
    """Those that break training are errors. Warnings are what it passes over. Faults of masks do not concern boxes."""
    split, (change, message) = KINDS[kind][0], KINDS[kind][1][fault]
    edit(data, split, change)
    found = inspect(data)
    (line,) = getattr(found, kind)
    assert line.startswith(f'{split}: ')
    assert re.search(message, line), line
    assert kind == 'errors' or found.errors == []
    assert kind != 'mask_errors' or found.warnings == []
    assert ('not usable for masks: val' in found.text()) == (kind == 'mask_errors')


def test_classes_that_are_never_learned_are_named(data):
    def rename(content):
        content['categories'][1]['name'] = 'dsik'  # instead of disk

    for split in ('train', 'val'):
        edit(data, split, rename)
    edit(data, 'train', lambda c: [a.update(category_id=1) for a in c['annotations'] if a['category_id'] == 2])
    learned, evaluated = inspect(data).warnings
    assert learned == 'train: classes without an example: dsik'
    assert evaluated == (
        'val: classes with objects of which train has none, so that AP counts them as missed: dsik (did you mean disk?)'
    )
    splits = find_coco_splits(data)
    of_test = dict(val=replace(splits['train'], name='val'), test=replace(splits['val'], name='test'))
    assert not any('of which' in line for line in inspect_splits(of_test).warnings)  # the detector learned neither


def test_run_lengths_that_do_not_add_up_are_never_decoded():
    for counts in ([5, 3, 4], coco_masks.frPyObjects(dict(size=[3, 4], counts=[5, 3, 4]), 3, 4)['counts'].decode()):
        assert mask_problem(dict(size=[3, 4], counts=counts), [3, 4]) == ''
    for counts in ([13, -1], [11.5, 0.5], [True, 11], [5, 3, 5], '/', '5P', 'PPPPPPPP0', '11O', ''):
        assert 'run-length masks' in mask_problem(dict(size=[3, 4], counts=counts), [3, 4])


def test_a_split_for_boxes_only_is_one_line(data):
    def drop(content):
        for annotation in content['annotations']:
            annotation.pop('segmentation')

    edit(data, 'val', drop)
    assert inspect(data).mask_errors == ['val: no annotation has a segmentation']


def test_what_the_evaluation_counts_as_missed(data):
    edit(data, 'val', lambda c: first(c).update(id=10_000, bbox=[5, 5, 0, 9]))
    problem = 'boxes without area (a side below 1 pixel, or area=0), which the evaluation counts as missed'
    assert f'val: {problem}: annotation 10000' in inspect(data).text()


def test_the_cause_is_named_if_no_box_can_be_used(data):
    edit(data, 'val', lambda c: [a.update(bbox=[v / 48 for v in a['bbox']]) for a in c['annotations']])
    (error,) = inspect(data).errors
    assert re.search(r'val: no image has .*: boxes without area .*: \d+\. Are they fractions\? COCO has pixels', error)


def test_annotations_of_some_classes_only(data):
    edit(data, 'val', lambda c: [image.update(neg_category_ids=[1]) for image in c['images']])
    (warning,) = inspect(data).warnings
    assert warning.startswith('val: its objects are not annotated in every image (neg_category_ids of LVIS)')


@pytest.mark.parametrize('share', [0.5, -0.5, 0], ids=['centers', 'top left corners', 'one box'])
def test_boxes_that_are_shifted_by_half_their_size(data, share):
    """Only those near a border reach beyond it."""

    def shift(content):
        for i, one in enumerate(content['annotations']):
            x, y = (0, 0) if i == 0 else (38, 38) if i == 1 else (20, 20)
            one.update(bbox=[x + 10 * share, y + 10 * share, 10, 10], segmentation=[])
        if not share:
            first(content).update(bbox=[-3, 0, 10, 10])

    edit(data, 'train', shift)
    place = 'centers' if share > 0 else 'top left corners'
    change = 'subtract' if share > 0 else 'add'
    said = [line for line in inspect(data).warnings if 'all boxes are inside' in line]
    fit = f'train: all boxes are inside their image if x and y are their {place}. COCO has corners, and YOLO centers'
    assert said == [f'{fit}: {change} half of the sides'] * (share != 0)


@pytest.mark.parametrize(
    ('beyond', 'masks', 'is_error'), [(10, [], True), (9, [], False), (10, [[1, 1, 2, 1, 2, 2]], False)]
)
def test_many_boxes_that_fit_by_their_centers_are_an_error(data, beyond, masks, is_error):
    """Few do not show it, and with masks a look at the drawings does."""

    def shift(content):
        del content['annotations'][20:]
        for i, one in enumerate(content['annotations']):
            x, y = (38, 38) if i < beyond else (20, 20)
            one.update(bbox=[x + 5, y + 5, 10 + i / 10, 10], segmentation=masks)

    edit(data, 'train', shift)
    found = inspect(data)
    (line,) = [one for one in (found.errors if is_error else found.warnings) if 'all boxes are inside' in one]
    assert line.startswith('train: all boxes are inside their image if x and y are their centers')
    assert found.errors == [line] * is_error


def test_crowds_are_counted_apart(data):
    content = edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations'][:5]])
    found = inspect(data)
    objects = len(content['annotations']) - 5
    assert re.search(rf'\| train \| 8 \| \d+ \| {objects} \| 5 \|', found.table)
    edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations']])
    (error,), count = inspect(data).errors, len(content['annotations'])
    assert re.fullmatch(rf'train: no image has an object .*: crowds \(iscrowd=1, .* single objects: {count}', error)
    edit(data, 'train', lambda c: [a.update(iscrowd=i > 1) for i, a in enumerate(c['annotations'])])
    assert any(line.startswith('train: crowds (iscrowd=1') for line in inspect(data).warnings)


@pytest.mark.parametrize('mask', [dict(size=[48, 48], counts=[2304]), []], ids=['run lengths', 'box'])
def test_more_crowds_with_run_lengths_than_coco_has_are_named(data, mask):
    def mark(content):
        for i, one in enumerate(content['annotations']):
            one.update(iscrowd=int(i <= count // 20))
            if one['iscrowd']:
                one.update(segmentation=mask)

    count = len(json.loads((data / 'annotations' / 'train.json').read_text())['annotations'])
    edit(data, 'train', mark)
    assert any(line.startswith('train: crowds') for line in inspect(data).warnings) == bool(mask)


def encoded(image, kind, **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def test_images_that_exif_turns_are_counted(data):
    exif = Image.Exif()
    exif[0x0112] = 3
    for path in sorted((data / 'images' / 'train').iterdir())[:3]:
        path.write_bytes(encoded(Image.open(path), 'JPEG', exif=exif))
    (warning,) = inspect(data).warnings
    assert warning.startswith('train: images that their EXIF turns: 3 of 8. They are turned upright, and the boxes')


def test_categories_that_do_not_match_between_splits(data):
    whole = json.loads((data / 'annotations/val.json').read_text())
    edit(data, 'val', lambda c: c['categories'][0].update(name='moon'))
    assert inspect(data).errors == [
        'val: the classes are not those of train: without disk, but with moon. Use one list of names for both'
    ]
    for split in ('train', 'val'):
        edit(data, split, lambda c: c['categories'][0].update(name='Square '))
    (warning,) = inspect(data).warnings
    assert warning.endswith("differ only in case, spaces or forms of a character: 'Square ' and 'square'")
    edit(data, 'val', lambda c: c['categories'][0].update(name='square\u200b'))
    (error,) = inspect(data).errors
    assert "without 'Square ', but with 'square\\u200b'" in error
    edit(data, 'train', lambda c: c['categories'][0].update(name='disk'))
    edit(data, 'val', lambda c: c.update(copy.deepcopy(whole)) or c['categories'].append(dict(id=9, name='moon')))
    found = inspect(data)
    assert found.errors == []
    assert 'val: categories that train does not have, with their objects ignored: moon (0 objects)' in found.warnings


def test_an_image_in_two_splits_is_found_under_another_name(data):
    train, val = sorted((data / 'images/train').iterdir())[3], sorted((data / 'images/val').iterdir())[5]
    val.write_bytes(train.read_bytes())
    assert inspect(data).warnings == [f'images in both train and val: {train.name} = {val.name}']
    val.with_name('new.jpg').write_bytes(val.read_bytes())
    edit(data, 'val', lambda c: c['images'].append(dict(c['images'][0], id=10**6, file_name='new.jpg')))
    twice = f'val: images with the same content: {val.name} = new.jpg'
    assert inspect(data).warnings == [f'images in both train and val: {train.name} = {val.name}', twice]
    (data / 'images/val/extra.jpg').write_bytes(b'')
    (data / 'images/val/mask.png').write_bytes(b'')
    said = 'train: images next to others that the annotation files of train and val do not list: 1 (extra.jpg)'
    assert said in inspect(data).warnings
    listed = [dict(id=1, file_name='extra.jpg', width=9, height=9)]
    unlabeled = json.loads((data / 'annotations/val.json').read_text()) | dict(images=listed, annotations=[])
    (data / 'annotations/test.json').write_text(json.dumps(unlabeled))
    assert said not in inspect(data).warnings
