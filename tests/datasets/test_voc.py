"""Pascal VOC: folders, lists and objects as programs write them, and faults by name."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.data_folders import objects
from tests.helpers.folders import NAMES, assert_same_objects, write_voc
from tests.helpers.judging import codes, finding, judge
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.image_files import list_images
from tokennorm.findings import Refusal

CVAT = """<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>
{}</annotations>"""

BOX = (
    '<annotation><object><name>star</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>'
    '</bndbox></object></annotation>'
)
VOCS = {
    'cut off': ('<annotation><object>', 'cannot be read as XML'),
    'no box': ('<annotation><object><name>star</name></object></annotation>', "an object 'star' has 0 bndbox, not 1"),
    'text': (
        '<annotation><object><name>star</name><bndbox><xmin>a</xmin></bndbox></object></annotation>',
        "bndbox.xmin='a' is not a number",
    ),
    'right to left': (BOX.format(9, 1, 8, 5), 'a bndbox ends before it begins: 9, 1, 8, 5'),
    'upside down': (BOX.format(1, 9, 5, 8), 'a bndbox ends before it begins: 1, 9, 5, 8'),
}


@pytest.mark.parametrize('first', [0, 0.4, 1])
def test_voc_counts_from_0_if_a_box_begins_there(root, first):
    zero = int(first)
    box = (
        '<object><name>cat</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>30</xmax><ymax>30</ymax></bndbox></object>'
    )
    for path in list_images(root):
        corner = (first, first) if path.stem == '5' else (10 + zero, 10 + zero)
        path.with_suffix('.xml').write_text(f'<annotation>{box.format(*corner)}</annotation>')
    splits = find_splits(root)
    assert objects(splits['train'])['0.png'][2] == ('cat', 10, 10, 20, 20, 400)
    begin = first - zero
    assert objects(splits['val'])['5.png'][2] == ('cat', begin, begin, 30 - begin, 30 - begin, (30 - begin) ** 2)
    assert ('pixels-from-0' in codes(judge(root)[1])) == (first < 1)
    (root / 'train' / '1.xml').unlink()
    _, found = judge(root)
    assert finding(found, 'unlisted-image').items == ('1.png',)
    (root / 'train' / '0.png').rename(root / 'train' / '0.HEIC')
    _, found = judge(root)
    assert finding(found, 'label-without-image').items == (f'{root}/train/0.xml',)
    assert finding(found, 'unread-files').text.endswith(': 1 .heic')


@pytest.mark.parametrize('layout', ['CVAT', 'FiftyOne'])
def test_voc_of_other_programs(root, layout):
    """CVAT has folders of images, boxes before their rotation, and masks; FiftyOne has data and labels."""
    turned = '<attributes><attribute><name>rotation</name><value>90.0</value></attribute></attributes>'
    turned = f'<occluded>0</occluded>{turned}' if layout == 'CVAT' else ''
    box = '<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>50</xmax><ymax>40</ymax></bndbox>'
    for path in list_images(root):
        split, (images, labels) = path.parent.name, ('data', 'labels')
        folder = root / split
        if layout == 'CVAT':
            folder, images, labels = root, f'JPEGImages/cam {split}', f'Annotations/cam {split}'
            (root / 'ImageSets' / 'Main').mkdir(parents=True, exist_ok=True)
            with (root / 'ImageSets' / 'Main' / f'{split}.txt').open('a') as file:
                file.write(f'cam {split}/{path.stem}\n')
        for name in (images, labels):
            (folder / name).mkdir(parents=True, exist_ok=True)
        text = f'<annotation><object><name>cat</name>{turned}{box}</object></annotation>'
        (folder / labels / f'{path.stem}.xml').write_text(text)
        path.rename(folder / images / path.name)
    if layout == 'CVAT':
        (root / 'SegmentationObject').mkdir()
    splits, found = judge(root)
    expected = (20, 10, 20, 40) if layout == 'CVAT' else (10, 20, 40, 20)
    assert objects(splits['val'])['5.png'][2] == pytest.approx(('cat', *expected, 800))
    assert ('rotated-box' in codes(found, 'train')) == (layout == 'CVAT')


def test_lists_of_voc_elsewhere(root):
    (root / 'ImageSets').mkdir()
    (root / 'Annotations').mkdir()
    box = '<bndbox><xmin>11</xmin><ymin>11</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>'
    (root / 'train').rename(root / 'JPEGImages')
    for path in (root / 'val').iterdir():
        path.rename(root / 'JPEGImages' / path.name)
    for i in range(8):
        text = f'<annotation><object><name>cat</name>{box}</object></annotation>'
        (root / 'Annotations' / f'{i}.xml').write_text(text)
    for name, numbers in (('train', range(3)), ('val', range(3, 8))):
        (root / 'ImageSets' / f'{name}.txt').write_text(''.join(f'{i}\n' for i in numbers))
    splits = find_splits(root)
    assert list(objects(splits['train'])) == ['0.png', '1.png', '2.png']
    assert objects(splits['val'])['7.png'] == (96, 64, ('cat', 10, 10, 20, 20, 400))
    (root / 'ImageSets' / 'Main').mkdir()
    for path in (root / 'ImageSets').glob('*.txt'):
        path.rename(root / 'ImageSets' / 'Main' / path.name)
    (root / 'ImageSets' / 'Main' / 'test.txt').write_text('7\n8\n')
    assert list(objects(find_splits(root)['test'])) == ['7.png']
    (root / 'ImageSets' / 'Main' / 'train.txt').rename(root / 'ImageSets' / 'Main' / 'trainval.txt')
    with (root / 'ImageSets' / 'Main' / 'trainval.txt').open('a') as file:  # it holds val, too
        file.write('\n3\n4\n5\n6\n7\n')
    assert list(objects(find_splits(root)['train'])) == ['0.png', '1.png', '2.png']
    (root / 'ImageSets' / 'Main' / 'train.txt').write_text('')
    assert list(objects(find_splits(root)['train'])) == ['0.png', '1.png', '2.png']
    shutil.rmtree(root / 'ImageSets' / 'Main')
    for name in ('train', 'val'):  # of segmentation: then all images are train
        (root / 'ImageSets' / f'{name}.txt').write_text('JPEGImages/0.png Labels/0.png\n')
    assert len(find_splits(root, ('train',))['train'].content['images']) == 8


@pytest.mark.parametrize('image_sets', [True, False])
def test_voc_gives_the_same_objects_with_sorted_classes(coco, tmp_path, image_sets):
    actual, expected = find_splits(write_voc(coco, tmp_path / 'voc', image_sets)), find_splits(coco)
    for name, split in actual.items():
        assert [category['name'] for category in split.content['categories']] == sorted(NAMES)
        for image in split.content['images']:
            image['file_name'] = image['file_name'].rpartition('/')[2].removeprefix(f'{name}_')
        assert_same_objects(split, expected[name])
    assert 'no-mask' not in codes(judge(tmp_path / 'voc')[1])


@pytest.mark.parametrize('difficult', ['1', 'True'])
def test_voc_details(tmp_path, coco, difficult):
    """Corners count from 1 and include the last pixel; `difficult` is a crowd; parts of objects are not objects."""
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    box = '<bndbox><xmin>1</xmin><ymin>11</ymin><xmax>64</xmax><ymax>20</ymax></bndbox>'
    part = f'<part><name>head</name>{box}</part>'
    marked = f'<difficult>{difficult}</difficult>'
    path.write_text(f'<annotation><object><name>star</name>{marked}{box}{part}</object></annotation>')
    content = find_splits(root)['train'].content
    (image,) = (i for i in content['images'] if Path(i['file_name']).stem == path.stem)
    (a,) = (a for a in content['annotations'] if a['image_id'] == image['id'])
    assert (a['bbox'], a['area'], a['iscrowd']) == ([0, 10, 64, 10], 640, 1)
    assert (image['width'], image['height']) == (64, 64)
    assert [category['name'] for category in content['categories']] == sorted(NAMES)


def test_masks_are_not_the_images_of_a_voc_folder(tmp_path, coco):
    root = write_voc(coco, tmp_path / 'voc')
    shutil.copytree(root / 'JPEGImages', root / 'SegmentationClass')
    (root / 'JPEGImages').rename(root / 'images')  # after the masks in the alphabet
    assert {Path(one['file_name']).parent.name for one in find_splits(root)['val'].content['images']} == {'images'}


def test_voc_objects_that_can_be_misread(tmp_path, coco):
    """Of two images of one stem the XML file names one; an object with two boxes is none."""
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    image = next((root / 'JPEGImages').glob(f'{path.stem}.*'))
    Image.new('RGB', (64, 64)).save(image.with_suffix('.png'))
    box = '<bndbox><xmin>41</xmin><ymin>41</ymin><xmax>70</xmax><ymax>70</ymax></bndbox>'
    one = f'<object><name>star</name>{{}}{box}</object>'
    path.write_text(f'<annotation><filename>{image.stem}.png</filename>{one.format("")}</annotation>')
    (root / 'ImageSets' / 'Main' / 'train.txt').write_text(f'{path.stem}.png')  # VOC has no suffix there
    splits = find_splits(root)
    assert [Path(one['file_name']).suffix for one in splits['train'].content['images']] == ['.png']
    assert [a['bbox'] for a in splits['train'].content['annotations']] == [[40, 40, 30, 30]]
    path.write_text(f'<annotation>{one.format(box)}</annotation>')
    assert "an object 'star' has 2 bndbox, not 1" in finding(judge(root)[1], 'invalid-label').items[0]


@pytest.mark.parametrize('fault', VOCS)
def test_faults_of_voc_files_are_named(coco, tmp_path, fault):
    text, message = VOCS[fault]
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    path.write_text(text)
    with pytest.raises(Refusal, match=f'{path.name}.*{message}'):
        find_splits(root)


def test_an_xml_file_without_its_image_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / 'a.xml').write_text('<annotation>\n</annotation>')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refusal, match='is a Pascal VOC dataset without val'):
        find_splits('.')
    assert finding(judge('.', ('train',))[1], 'label-without-image').items == ('a.xml',)
