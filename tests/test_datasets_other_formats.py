"""Pascal VOC, exports of labeling tools, formats that are not read, and files that are not data."""

import json
import os
import shutil

import pytest

from tests.helpers.data_folders import objects
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_files import list_files, list_images

CVAT = """<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>
{}</annotations>"""
OPEN_IMAGES = 'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf'


@pytest.mark.parametrize('first', [0, 1])
def test_voc_counts_from_0_if_a_box_begins_there(root, first):
    box = (
        '<object><name>cat</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>30</xmax><ymax>30</ymax></bndbox></object>'
    )
    for path in list_images(root):
        corner = (first, first) if path.stem == '5' else (10 + first, 10 + first)
        path.with_suffix('.xml').write_text(f'<annotation>{box.format(*corner)}</annotation>')
    splits = find_splits(root)
    assert objects(splits['train'])['0.png'][2] == ('cat', 10, 10, 20, 20, 400)
    assert objects(splits['val'])['5.png'][2] == ('cat', 0, 0, 30, 30, 900)
    said = 'train: pixels are counted from 0, not from 1 as VOC does: in all splits together 1 box begins at 0'
    assert (said in inspect_splits(splits).warnings) == (first == 0)
    path = root / 'train' / '0.xml'
    path.write_bytes(f'<?xml version="1.0" encoding="gbk"?>{path.read_text().replace("cat", "猫")}'.encode('gbk'))
    (root / 'train' / '1.xml').unlink()
    splits = find_splits(root)
    assert objects(splits['train'])['0.png'][2][0] == '猫'
    assert 'train: images without an XML file, left out: 1 (1.png)' in inspect_splits(splits).warnings
    (root / 'train' / '0.png').rename(root / 'train' / '0.HEIC')
    with pytest.raises(ValueError, match=r'1 of 3 XML files have no image, .*0.xml; images of formats .*: 1 .heic'):
        find_splits(root)


@pytest.mark.parametrize('layout', ['CVAT', 'Open Images', 'DOTA'])
def test_exports_are_read_by_hotcoco(root, layout):
    for name, numbers in (('train', range(4)), ('val', range(4, 8))):
        if layout == 'CVAT':
            box = '<box label="cat" rotation="30.0" xtl="10" ytl="10" xbr="30" ybr="30" occluded="0" z_order="0"/>'
            entries = (f'<image id="{i}" name="x/{i}.png" width="96" height="64">{box}</image>' for i in numbers)
            (root / name / 'annotations.xml').write_text(CVAT.format(''.join(entries)))
        elif layout == 'Open Images':
            lines = (f'{i},x,cat,1,{10 / 96},{30 / 96},{10 / 64},{30 / 64},0,0,0' for i in numbers)
            (root / f'{name}.csv').write_text('\n'.join([OPEN_IMAGES, *lines]))
        else:
            for i in numbers:
                path = root / name / 'labelTxt' / f'{i}.txt'
                path.parent.mkdir(exist_ok=True)
                path.write_text('imagesource:x\ngsd:1\n10 10 30 10 30 30 10 30 cat 0\n')
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
