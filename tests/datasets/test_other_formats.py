"""Pascal VOC, exports of labeling tools, formats that are not read, and files that are not data."""

import json
import os
import shutil

import pytest

from tests.helpers.data_folders import objects
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_files import list_files, list_images
from tokennorm.datasets.splitting import find_unsplit

CVAT = """<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>
{}</annotations>"""
OPEN_IMAGES = 'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf'


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


def test_subsets_of_a_project_of_cvat_are_its_splits(root):
    box = '<box label="cat" xtl="{0}" ytl="{0}" xbr="40" ybr="40" occluded="0" z_order="0"/>'
    entries = [
        f'<image id="{i}" name="{i}.png" subset="{subset}" width="96" height="64">{box.format(10 + i)}</image>'
        for i, subset in enumerate(['Train', 'Train', 'Train', 'Extra', 'Validation', 'Validation'])
    ]
    (root / 'annotations.xml').write_text(CVAT.format(''.join(entries)))
    splits = find_splits(root)
    assert objects(splits['train']).keys() == {'0.png', '1.png', '2.png'}
    assert objects(splits['val'])['5.png'] == (96, 64, ('cat', 15, 15, 25, 25, 625))
    assert len(splits['val'].content['annotations']) == 2
    assert 'images of subsets that name no split, left out: 1' in splits['train'].notes
    entries.append(entries.pop(0))  # the order of the images is not that of the splits
    (root / 'annotations.xml').write_text(CVAT.format(''.join(entries[::-1])))
    assert list(find_splits(root)) == ['train', 'val']
    one = CVAT.format(''.join(entries[:3]))  # of a task, whose one subset says nothing about its files
    for name in ('train', 'val'):
        (root / f'{name}.xml').write_text(one)
    assert len(find_splits(root)['val'].content['images']) == 3
    (root / 'val.xml').write_text(CVAT.format(''.join(entries))[:-30])
    with pytest.raises(ValueError, match=r'val\.xml cannot be read'):
        find_splits(root)
    with pytest.raises(ValueError, match='is divided already, by the subsets of its images: use the folder'):
        find_unsplit(root / 'annotations.xml')


def test_a_class_that_one_split_lacks(root):
    """DOTA has no list of classes."""
    for name, kind in (('train', 'cat'), ('val', 'dog')):
        (root / name / 'labelTxt').mkdir()
        for path in list_images(root / name):
            (root / name / 'labelTxt' / f'{path.stem}.txt').write_text(f'10 10 30 10 30 30 10 30 {kind} 0\n')
    splits = find_splits(root)
    assert [[one['name'] for one in splits[name].content['categories']] for name in ('train', 'val')] == [
        ['cat', 'dog'],
        ['cat', 'dog'],
    ]
    assert objects(splits['val'])['4.png'][2][0] == 'dog'
    found = inspect_splits(splits)
    assert found.errors == []
    assert any('classes with objects of which train has none' in line for line in found.warnings)


@pytest.mark.parametrize('layout', ['CVAT', 'Open Images', 'DOTA'])
def test_exports_are_read_by_hotcoco(root, layout):
    for name, numbers in (('train', range(4)), ('val', range(4, 8))):
        if layout == 'CVAT':
            box = '<box label="cat" rotation="30.0" xtl="10" ytl="10" xbr="30" ybr="30" occluded="0" z_order="0"/>'
            entries = (f'<image id="{i}" name="x/{i}.png" width="96" height="64">{box}</image>' for i in numbers)
            (root / name / 'annotations.xml').write_text(CVAT.format(''.join(entries)))
        elif layout == 'Open Images':
            (root / 'class-descriptions.csv').write_text('/m/1,cat\n')
            lines = (f'{i},x,/m/1,1,{10 / 96},{30 / 96},{10 / 64},{30 / 64},0,0,0' for i in numbers)
            (root / name / f'{name}.csv').write_text('\n'.join([OPEN_IMAGES, *lines]))
        else:
            for i in numbers:
                path = root / name / 'labelTxt' / f'{i}.txt'
                path.parent.mkdir(exist_ok=True)
                path.write_text('imagesource:x\ngsd:1\n\n1.5E1 10 25 10 30\t30 10 30 cat 0\r\n')  # no rectangle
    splits = find_splits(root)
    assert objects(splits['val'])['4.png'] == (96, 64, ('cat', 10, 10, 20, 20, pytest.approx(400)))
    assert len(splits['train'].content['images']) == 4
    found = inspect_splits(splits)
    assert found.errors == []
    assert ('train: boxes with a rotation, read without it: 4' in found.warnings) == (layout == 'CVAT')


OTHERS = {
    'labelme': ({'shapes': [], 'imagePath': '0.png'}, 'has the format of labelme'),
    'Label Studio': ([{'id': 1, 'annotations': [{'result': []}], 'data': {}}], 'has the format of Label Studio'),
    'VIA': ({'_via_settings': {}, '_via_img_metadata': {}}, 'has the format of VIA'),
    'Datumaro': ({'info': {}, 'categories': {'label': {'labels': []}}, 'items': []}, 'has the format of Datumaro'),
    'labelme with pixels first': ({'imageData': 'x' * 5000, 'shapes': []}, 'has the format of labelme'),
    'Supervisely': ({'description': '', 'tags': [], 'size': {}, 'objects': []}, 'has the format of Supervisely'),
    'V7 Darwin': ({'version': '2.0', 'schema_ref': 'x', 'item': {}}, 'has the format of V7 Darwin'),
    'Label Studio, small': ([{'image': '/data/0.png', 'annotation_id': 1}], 'has the format of Label Studio'),
    'VIA, one entry': ({'0.png': {'regions': [{'shape_attributes': {}}]}}, 'has the format of VIA'),
    'CreateML': ([{'image': '0.png', 'annotations': []}], 'has the format of CreateML'),
}


@pytest.mark.parametrize('kind', OTHERS)
def test_other_formats_are_named_in_one_line(root, kind):
    content, message = OTHERS[kind]
    for name in ('0', '1'):
        (root / 'train' / f'{name}.json').write_text(json.dumps(content))
    with pytest.raises(FileNotFoundError, match=message) as caught:
        find_splits(root)
    assert len(str(caught.value)) < 400


def test_tables_are_named(root):
    (root / 'train' / 'metadata.jsonl').write_text('{"file_name": "0.png", "objects": {"bbox": []}}')
    with pytest.raises(FileNotFoundError, match=r'Tables are not read \(train/metadata.jsonl\): convert them to COCO'):
        find_splits(root)


def test_a_zip_file_is_to_be_unpacked(root, tmp_path):
    archive = shutil.make_archive(str(tmp_path / 'archive'), 'zip', root)
    with pytest.raises(FileNotFoundError, match=r'archive.zip is a zip file; unpack it'):
        find_splits(archive)


def test_what_is_data(root):
    expected = list_files(root)
    for name in ('.hidden', '__MACOSX', '@eaDir', '.ipynb_checkpoints'):
        (root / name).mkdir()
        os.link(root / 'train' / '0.png', root / name / '0.png')
    os.link(root / 'train' / '0.png', root / 'train' / '._0.png')
    for i in range(40):  # 2**40 ways through links
        (root / 'train' / f'loop{i}').symlink_to(root, target_is_directory=True)
    assert list_files(root) == expected
    (root / 'train' / '0.png').rename(root / 'train' / '0.JFIF')
    assert root / 'train' / '0.JFIF' in list_images(root)
