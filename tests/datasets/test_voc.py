"""Pascal VOC: folders, lists and objects as programs write them, and faults by name."""

from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.data_folders import objects
from tests.helpers.folders import NAMES, assert_same_objects, write_voc
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_files import list_images

CVAT = """<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>
{}</annotations>"""


VOCS = {
    'cut off': ('<annotation><object>', 'cannot be read as XML'),
    'no box': ('<annotation><object><name>star</name></object></annotation>', "an object 'star' has no bndbox"),
    'text': (
        '<annotation><object><name>star</name><bndbox><xmin>a</xmin></bndbox></object></annotation>',
        "bndbox.xmin='a' is not a number",
    ),
    'other size': (
        '<annotation><size><width>10</width><height>64</height></size></annotation>',
        r'size is 10x64, but .*\.jpg, upright, is 64x64',
    ),
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
    said = 'train: pixels are counted from 0, not from 1 as VOC does: in all splits together 1 box begins below 1'
    assert (said in inspect_splits(splits).warnings) == (first < 1)
    path = root / 'train' / '0.xml'
    path.write_bytes(f'<?xml version="1.0" encoding="gbk"?>{path.read_text().replace("cat", "猫")}'.encode('gbk'))
    (root / 'train' / '1.xml').unlink()
    splits = find_splits(root)
    assert objects(splits['train'])['0.png'][2][0] == '猫'
    assert 'train: images without an XML file, left out: 1 (1.png)' in inspect_splits(splits).warnings
    (root / 'train' / '0.png').rename(root / 'train' / '0.HEIC')
    with pytest.raises(ValueError, match=r'1 of 3 XML files have no image, .*0.xml; files of formats .*: 1 .heic'):
        find_splits(root)


@pytest.mark.parametrize('layout', ['CVAT', 'FiftyOne'])
def test_voc_of_other_programs(root, layout):
    """CVAT has folders of images, boxes before their rotation, and masks; FiftyOne has data and labels."""
    turned = '<attributes><attribute><name>rotation</name><value>90.0</value></attribute></attributes>' * (
        layout == 'CVAT'
    )
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
    splits = find_splits(root)
    expected = (20, 10, 20, 40) if layout == 'CVAT' else (10, 20, 40, 20)
    assert objects(splits['val'])['5.png'] == (96, 64, ('cat', *expected, 800))
    rotated = 'boxes with the attribute rotation, read as the upright boxes around them: 8'
    masks = 'masks (SegmentationObject) are not read, nor objects without a box: export as COCO to have them'
    assert splits['train'].notes == [rotated, masks] * (layout == 'CVAT')


@pytest.mark.parametrize('layout', ['ImageSets', 'PaddleX'])
def test_lists_of_voc_elsewhere(root, layout):
    (root / 'ImageSets').mkdir()
    (root / 'Annotations').mkdir()
    box = '<bndbox><xmin>11</xmin><ymin>11</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>'
    (root / 'train').rename(root / 'JPEGImages')
    for path in (root / 'val').iterdir():
        path.rename(root / 'JPEGImages' / path.name)
    for i in range(8):
        text = f'<annotation xmlns="http://a.b"><object><name>cat</name>{box}</object></annotation>'
        (root / 'Annotations' / f'{i}.xml').write_text(text)
    for name, numbers in (('train', range(3)), ('val', range(3, 8))):
        if layout == 'PaddleX':
            (root / f'{name}_list.txt').write_text(
                ''.join(f'JPEGImages/{i}.png Annotations\\{i}.xml\n' for i in numbers)
            )
        else:
            (root / 'ImageSets' / f'{name}.txt').write_text(''.join(f'{i}\n' for i in numbers))
    splits = find_splits(root)
    assert list(objects(splits['train'])) == ['0.png', '1.png', '2.png']
    assert objects(splits['val'])['7.png'] == (96, 64, ('cat', 10, 10, 20, 20, 400))
    if layout == 'ImageSets':
        (root / 'ImageSets' / 'Main').mkdir()
        for path in (root / 'ImageSets').glob('*.txt'):
            path.rename(root / 'ImageSets' / 'Main' / path.name)
        (root / 'ImageSets' / 'Main' / 'test.txt').write_text('7\n8\n')
        splits = find_splits(root)
        assert list(objects(splits['test'])) == ['7.png']
        assert splits['test'].notes == [f'images of {root}/ImageSets/Main/test.txt without annotations, left out: 1']
        (root / 'ImageSets' / 'Main' / 'train.txt').rename(root / 'ImageSets' / 'Main' / 'trainval.txt')
        with (root / 'ImageSets' / 'Main' / 'trainval.txt').open('a') as file:  # it holds val, too
            file.write('\n3\n4\n5\n6\n7\n')
        assert list(objects(find_splits(root)['train'])) == ['0.png', '1.png', '2.png']
        (root / 'ImageSets' / 'Main' / 'train.txt').write_text('')
        assert list(objects(find_splits(root)['train'])) == ['0.png', '1.png', '2.png']
    if layout == 'PaddleX':  # of segmentation: then all images are train
        for name in ('train', 'val'):
            (root / f'{name}_list.txt').write_text('JPEGImages/0.png Labels/0.png\n')
        assert len(find_splits(root, ('train',))['train'].content['images']) == 8


@pytest.mark.parametrize('image_sets', [True, False])
def test_voc_gives_the_same_objects_with_sorted_classes(coco, tmp_path, image_sets):
    actual, expected = find_splits(write_voc(coco, tmp_path / 'voc', image_sets)), find_coco_splits(coco)
    for name, split in actual.items():
        assert [category['name'] for category in split.content['categories']] == sorted(NAMES)
        for image in split.content['images']:
            image['file_name'] = image['file_name'].rpartition('/')[2].removeprefix(f'{name}_')
        assert_same_objects(split, expected[name])
    inspected = inspect_splits(find_splits(tmp_path / 'voc'))
    assert (inspected.errors, inspected.mask_errors) == ([], [])


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
    with pytest.raises(ValueError, match=r"an object 'star' has 2 bndbox, not 1"):
        find_splits(root)


@pytest.mark.parametrize('fault', VOCS)
def test_faults_of_voc_files_are_named(coco, tmp_path, fault):
    text, message = VOCS[fault]
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    path.write_text(text)
    with pytest.raises(ValueError, match=f'{path.name}.*{message}'):
        find_splits(root)


def test_an_xml_file_without_its_image_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / 'a.xml').write_text('<annotation>\n</annotation>')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r'1 of 1 XML files have no image, such as a\.xml'):
        find_splits('.')
