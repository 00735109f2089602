"""Each fault in a dataset is found and named, and a sound dataset has none."""

import copy
import io
import json
import re
import shutil

import cv2
import mmcv
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks

from tests.helpers.coco_files import edit
from tokennorm.datasets import make_shapes_dataset
from tokennorm.datasets.coco.annotations import mask_problem
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.image_files import open_image


@pytest.fixture(scope='module')
def sound(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=24, num_val=12, image_size=64)


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
    row = f'| train | 24 | {per_image.count(0)} | {sum(per_image)} | 0 | {max(per_image)} |'
    assert row in found.table
    disks = sum(a['category_id'] == content['categories'][0]['id'] for a in content['annotations'])
    assert f'| disk | {disks} |' in found.table
    assert found.mask_errors == []


def first(content):
    return content['annotations'][0]


ENTRIES = {
    'missing bbox': (
        lambda c: first(c).pop('bbox'),
        r'train: annotations without a valid bbox: id \d+ of \d+\.jpg \(bbox=None\)',
    ),
    'NaN': (lambda c: first(c).update(bbox=[1, 2, float('nan'), 4]), r'annotations without a valid bbox: .*nan'),
    'three numbers': (lambda c: first(c).update(bbox=[1, 2, 3]), r'annotations without a valid bbox'),
    'no area': (lambda c: first(c).pop('area'), r'annotations without a valid area'),
    'no width': (lambda c: c['images'][0].pop('width'), r'images without a valid width: .*\.jpg \(width=None\)'),
    'zero height': (lambda c: c['images'][0].update(height=0), r'images without a valid height'),
    'no name': (lambda c: c['categories'][0].pop('name'), r'categories without a valid name'),
    'same id': (lambda c: c['annotations'][1].update(id=first(c)['id']), r'annotations with the same id'),
    'same class': (lambda c: c['categories'][1].update(name='disk'), r"categories with the same name: 'disk'"),
    'no images': (lambda c: (c['images'].clear(), c['annotations'].clear()), r'has no images or no categories'),
    'type of id': (lambda c: [a.update(image_id=str(a['image_id'])) for a in c['annotations']], r'are not of one type'),
    'corners': (
        lambda c: [a.update(bbox=[40, 40, 60, 60], segmentation=[[1, 2, 3, 4, 5, 6]]) for a in c['annotations']],
        r'boxes reach beyond their image and would fit as \[x1, y1, x2, y2\]',
    ),
    'no objects': (lambda c: c['annotations'].clear(), r'train: no image has an object'),
    'id beyond doubles': (lambda c: first(c).update(id=2**53), r'annotations without a valid id: id 9007199254740992'),
    'huge side': (
        lambda c: first(c).update(bbox=[1, 2, 1e300, 4]),
        r'without a valid bbox: id \d+ of \d+\.jpg .*1e\+300',
    ),
    'infinite': (lambda c: first(c).update(area=float('inf')), r'annotations without a valid area: .*=inf'),
    'beyond floats': (lambda c: c['images'][0].update(width=10**400), r'images without a valid width'),
    'types of ids': (lambda c: c['images'][0].update(id='a'), r'the id of images and the image_id .* not of one type'),
    'types of classes': (lambda c: c['categories'][0].update(id='a'), r'the id of categories and .* not of one type'),
    'text as id': (lambda c: first(c).update(id='a'), r"annotations without a valid id: id a of \d+\.jpg \(id='a'\)"),
}


@pytest.mark.parametrize('fault', ENTRIES)
def test_entries_that_would_break_training_are_errors(data, fault):
    change, message = ENTRIES[fault]
    edit(data, 'train', change)
    (error,) = inspect(data).errors
    assert re.search(message, error), error


BOXES = {
    'no side': (lambda c: first(c).update(bbox=[5, 5, 0, 9]), r'boxes without area .*annotation \d+ of .*\.jpg'),
    'negative side': (lambda c: first(c).update(bbox=[5, 5, -4, 9]), r'boxes without area'),
    'no area': (lambda c: first(c).update(area=0), r'boxes without area'),
    'outside': (lambda c: first(c).update(bbox=[64, 5, 9, 9]), r'boxes outside their image, not trained on'),
    'above': (lambda c: first(c).update(bbox=[5, -9, 9, 9]), r'boxes outside their image'),
    'ignore': (lambda c: first(c).update(ignore=1), r'objects marked ignore, not trained on'),
    'partly': (lambda c: first(c).update(bbox=[60, 5, 9, 9]), r'boxes partly outside their image'),
    'image': (lambda c: first(c).update(image_id=10**6), r'annotations of an image that is not listed'),
    'category': (lambda c: first(c).update(category_id=99), r'annotations of a category that is not listed'),
    'polygon': (lambda c: first(c).update(segmentation=[[1, 2, 3, 4]]), r'segmentations that are neither'),
    'class': (
        lambda c: [a.update(category_id=1) for a in c['annotations'] if a['category_id'] == 2],
        r'classes without an example: square',
    ),
}


@pytest.mark.parametrize('fault', BOXES)
def test_what_training_passes_over_is_a_warning(data, fault):
    change, message = BOXES[fault]
    edit(data, 'train', change)
    found = inspect(data)
    assert found.errors == []
    (warning,) = found.warnings
    assert re.match(f'train: {message}', warning), warning


MASKS = {
    'size': (
        lambda c: first(c).update(segmentation=dict(size=[3, 5], counts='0')),
        r'run-length masks that do not fit their image: annotation \d+ of \d+\.jpg '
        r'\(size=\[3, 5\], the image is \[64, 64\]\)',
    ),
    'sum': (
        lambda c: first(c).update(segmentation=dict(size=[64, 64], counts=[9])),
        r'run-length masks .*: annotation \d+ of \d+\.jpg \(counts that do not add up to the 4096 pixels of the image',
    ),
    'negative': (
        lambda c: first(c).update(segmentation=dict(size=[64, 64], counts=[4097, -1])),
        r'run-length masks .* \(counts that do not add up',
    ),
    'cut off': (
        lambda c: first(c).update(segmentation=dict(size=[64, 64], counts='P')),
        r'run-length masks .* \(counts that do not add up to the 4096 pixels of the image, or are damaged\)',
    ),
    'NaN': (
        lambda c: first(c).update(segmentation=[[1, 2, 3, 4, 5, float('nan')]]),
        r'polygons with values that are not numbers: annotation \d+ of \d+\.jpg$',
    ),
    'no list': (lambda c: first(c).update(segmentation=[1, 2, 3, 4, 5, 6]), r'polygons with values that are not'),
    'text': (lambda c: first(c).update(segmentation='a'), r'segmentations that are neither lists nor run lengths'),
    'far': (
        lambda c: first(c).update(segmentation=[[1, 2, 3, 4, 5, 200]]),
        r'polygons far outside their image: annotation \d+ of \d+\.jpg \(200\)',
    ),
    'missing': (lambda c: first(c).pop('segmentation'), r'annotations without a segmentation: annotation \d+'),
    'polygon': (lambda c: first(c).update(segmentation=[[1, 2, 3, 4]]), r'segmentations that are neither'),
}


@pytest.mark.parametrize('fault', MASKS)
def test_faults_of_masks_do_not_concern_boxes(data, fault):
    change, message = MASKS[fault]
    edit(data, 'val', change)
    found = inspect(data)
    assert (found.errors, found.warnings) == ([], [])
    (error,) = found.mask_errors
    assert re.match(f'val: {message}', error), error
    assert 'not usable for masks: val' in str(found)
    assert 'No problems found.' in str(found)


@pytest.mark.parametrize('runs', [[12], [0, 12], [5, 3, 4], [5, 0, 3, 4], [1] * 12, [11, 1]])
def test_run_lengths_are_sound_packed_or_not(runs):
    size = [3, 4]
    packed = coco_masks.frPyObjects(dict(size=size, counts=runs), *size)['counts'].decode()
    for counts in (runs, packed):
        assert mask_problem(dict(size=size, counts=counts), size) == ('', '')
        for other in ([3, 3], [4, 4]):
            kind, detail = mask_problem(dict(size=other, counts=counts), other)
            assert kind == 'run-length masks that do not fit their image'
            assert detail.startswith(f'counts that do not add up to the {other[0] * other[1]} pixels')


@pytest.mark.parametrize('counts', [[13, -1], [11.5, 0.5], [True, 11], '/', 'p', '5P', 'PPPPPPPP0', 'O', '11O', ''])
def test_damaged_run_lengths_are_never_decoded(counts):
    kind, _ = mask_problem(dict(size=[3, 4], counts=counts), [3, 4])
    assert kind == 'run-length masks that do not fit their image'


def test_a_split_for_boxes_only_is_one_line(data):
    def drop(content):
        for annotation in content['annotations']:
            annotation.pop('segmentation')

    edit(data, 'val', drop)
    assert inspect(data).mask_errors == ['val: no annotation has a segmentation']


def test_what_the_evaluation_gets_wrong(data):
    """pycocotools takes the id 0 for "unmatched", and counts what mmdet passes over in training as missed."""
    edit(data, 'val', lambda c: first(c).update(id=0))
    edit(data, 'train', lambda c: first(c).update(id=0))
    (error,) = inspect(data).errors
    assert error.startswith('val: an annotation has the id 0')
    edit(data, 'val', lambda c: first(c).update(id=10_000, bbox=[5, 5, 0, 9]))
    assert 'val: boxes without area (a side below 1 pixel, or area=0), which the evaluation counts as missed' in str(
        inspect(data)
    )


def test_crowds_are_counted_apart(data):
    content = edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations'][:5]])
    found = inspect(data)
    objects = len(content['annotations']) - 5
    assert re.search(rf'\| train \| 24 \| \d+ \| {objects} \| 5 \|', found.table)
    edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations']])
    assert inspect(data).errors == ['train: no image has an object to learn from or to evaluate on']


def test_image_files(data):
    images = json.loads((data / 'annotations/train.json').read_text())['images']
    names, ids = [image['file_name'] for image in images], [image['id'] for image in images]
    paths = [data / 'images' / 'train' / name for name in names]
    paths[0].unlink()
    paths[1].write_bytes(b'')
    paths[2].write_bytes(paths[2].read_bytes()[:-200])
    cv2.imwrite(str(paths[3]), np.zeros((32, 64, 3), np.uint8))
    paths[4].write_bytes(paths[4].read_bytes() + b'tail' * 50)  # bytes behind the end do no harm
    found = inspect(data)
    assert found.errors == [
        'train: image files whose size, after rotation by EXIF, is not that of the annotation file, so that boxes '
        f'are misplaced: {names[3]} (id {ids[3]}, 64x32, annotated 64x64)',
        f'train: image files missing in {data}/images/train: {names[0]} (id {ids[0]})',
        f'train: image files that cannot be decoded in {data}/images/train: '
        f'2 ({names[1]} (id {ids[1]}), {names[2]} (id {ids[2]}))',
    ]
    assert found.warnings == []


def replace_image(data, index, content):
    """Another file under the name of a training image, of that name in the json and size."""
    image = json.loads((data / 'annotations/train.json').read_text())['images'][index]
    (data / 'images' / 'train' / image['file_name']).write_bytes(content)
    return f'{image["file_name"]} (id {image["id"]})'


def encoded(image, kind, **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def test_images_of_other_kinds(data):
    """Grey, CMYK and transparent ones are read in color, without a word; of 16 bits half are lost."""
    replace_image(data, 0, encoded(Image.new('L', (64, 64)), 'JPEG'))
    replace_image(data, 1, encoded(Image.new('CMYK', (64, 64)), 'JPEG'))
    replace_image(data, 2, encoded(Image.new('RGBA', (64, 64)), 'PNG'))
    assert (inspect(data).errors, inspect(data).warnings) == ([], [])
    deep = np.zeros((64, 64, 3), np.uint16)
    names = [replace_image(data, i, cv2.imencode('.png', x)[1].tobytes()) for i, x in ((3, deep), (4, deep[..., 0]))]
    found = inspect(data)
    assert found.errors == []
    what = 'train: image files of 16 bits a channel, of which training reads the upper 8'
    assert found.warnings == [f'{what}: 2 ({names[0]}, {names[1]})']


def test_names_that_no_file_system_has(data):
    def rename(content):
        for image, name in zip(content['images'], ['x' * 5000, 'a\0b', '\ud800', '..'], strict=False):
            image['file_name'] = name

    edit(data, 'train', rename)
    found = inspect(data)
    (error,) = found.errors
    assert re.match(r'train: image files missing in \S+: 4 \(x+ \(id \d+\), a\0b', error)
    assert '\\ud800' in str(found), 'what cannot be printed is escaped'


def test_a_png_with_other_bytes_in_its_middle(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    content = bytearray(encoded(Image.fromarray(pixels), 'PNG'))
    (tmp_path / 'whole').write_bytes(content)
    content[len(content) // 2] ^= 255
    (tmp_path / 'a').write_bytes(content)
    assert open_image(tmp_path, 'whole').problem == ''
    assert open_image(tmp_path, 'a').problem == 'that cannot be decoded'


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'WEBP', 'TIFF'])
@pytest.mark.parametrize('orientation', [1, 3, 6, 8])
def test_sizes_are_those_that_training_reads(tmp_path, kind, orientation):
    """Formats differ in whether OpenCV turns them."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / 'a').write_bytes(encoded(Image.new('RGB', (40, 24)), kind, exif=exif))
    assert open_image(tmp_path, 'a').size == mmcv.imread(tmp_path / 'a').shape[1::-1]


def test_the_size_is_that_after_turning_by_exif(data):
    content = json.loads((data / 'annotations/train.json').read_text())
    path = data / 'images' / 'train' / content['images'][0]['file_name']
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((64, 32, 3), np.uint8)).save(path, exif=exif)
    assert '64x32, annotated 64x64' in inspect(data).errors[0]
    assert cv2.imread(str(path)).shape == (32, 64, 3), 'what training reads'


def test_categories_that_do_not_match_between_splits(data):
    whole = json.loads((data / 'annotations/val.json').read_text())
    edit(data, 'val', lambda c: c['categories'].reverse())
    (error,) = inspect(data).errors
    assert 'val: the categories come in another order than in train' in error
    edit(data, 'val', lambda c: c.update(copy.deepcopy(whole), categories=whole['categories'][1:]))
    assert 'val: categories of train that are not listed: disk' in inspect(data).errors[0]
    edit(data, 'val', lambda c: c.update(copy.deepcopy(whole)) or c['categories'].append(dict(id=9, name='moon')))
    found = inspect(data)
    assert found.errors == []
    assert 'val: categories that train does not have, with their objects ignored: moon (0 objects)' in found.warnings


def test_other_ids_for_the_same_names_are_a_warning(data):
    def renumber(content):
        for entry in content['categories']:
            entry['id'] += 10
        for entry in content['annotations']:
            entry['category_id'] += 10

    edit(data, 'val', renumber)
    found = inspect(data)
    assert found.errors == []
    assert 'categories with another id than in train: 4 (disk (11, in train 1)' in found.warnings[0]


def test_an_image_in_two_splits_is_found_under_another_name(data):
    train, val = sorted((data / 'images/train').iterdir())[3], sorted((data / 'images/val').iterdir())[5]
    val.write_bytes(train.read_bytes())
    assert inspect(data).warnings == [f'images in both train and val: {train.name} = {val.name}']


def test_iscrowd_is_needed_where_it_is_evaluated(data):
    for split in ('train', 'val'):
        edit(data, split, lambda c: [a.pop('iscrowd') for a in c['annotations']])
    (error,) = inspect(data).errors
    assert error.startswith('val: annotations without a valid iscrowd')


def test_long_lists_are_counted_and_cut(data):
    edit(data, 'train', lambda c: [a.update(area=0) for a in c['annotations'][:20]])
    assert re.search(r': 20 \(annotation .* and 15 more\)$', inspect(data).warnings[0])
