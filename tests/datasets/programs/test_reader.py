"""Exports of labeling tools: what is read, and formats that are named in one line."""

import json
import shutil

import pytest

from tests.helpers.data_folders import objects
from tests.helpers.judging import judge
from tokennorm.datasets.finding import find_splits
from tokennorm.findings import Refusal

CVAT = """<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>
{}</annotations>"""


OPEN_IMAGES = 'ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf'


@pytest.mark.parametrize('layout', ['CVAT', 'Open Images', 'DOTA'])
def test_exports_are_read_by_hotcoco(root, layout):
    for name, numbers in (('train', range(4)), ('val', range(4, 8))):
        if layout == 'CVAT':
            box = '<box label="cat" rotation="90.0" xtl="10" ytl="10" xbr="30" ybr="30" occluded="0" z_order="0"/>'
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
    splits, found = judge(root)
    assert objects(splits['val'])['4.png'] == (96, 64, ('cat', 10, 10, 20, 20, pytest.approx(400)))
    assert len(splits['train'].content['images']) == 4
    assert found.of('error', masks=False) == []
    assert splits['val'].columns.format == layout


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
    with pytest.raises(Refusal, match=message) as caught:
        find_splits(root)
    assert len(str(caught.value)) < 400


def test_tables_are_named(root):
    (root / 'train' / 'metadata.jsonl').write_text('{"file_name": "0.png", "objects": {"bbox": []}}')
    with pytest.raises(Refusal, match=r'Tables are not read \(train/metadata.jsonl\): convert them to COCO'):
        find_splits(root)


def test_a_zip_file_is_to_be_unpacked(root, tmp_path):
    archive = shutil.make_archive(str(tmp_path / 'archive'), 'zip', root)
    with pytest.raises(Refusal, match=r'archive.zip is a zip file; unpack it'):
        find_splits(archive)
