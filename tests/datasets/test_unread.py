"""Formats that are not read: one line names them, or what converts them."""

import json
import shutil

import pytest

from tokennorm.datasets.discovery import find_splits
from tokennorm.findings import Refusal


@pytest.mark.parametrize(
    'content', [{'shapes': [], 'imagePath': '0.png'}, {'imageData': 'x' * 5000, 'shapes': []}], ids=['small', 'pixels']
)
def test_files_of_labelme_are_named(root, content):
    for name in ('0', '1'):
        (root / 'train' / f'{name}.json').write_text(json.dumps(content))
    with pytest.raises(Refusal, match=r'train/0\.json has the format of labelme') as caught:
        find_splits(root)
    assert [one.code for one in caught.value.findings] == ['unread-format']
    assert len(str(caught.value)) < 400


def test_other_json_with_a_file_per_image(root):
    for name in ('0', '1'):  # Lightly's
        content = dict(file_name=f'{name}.png', predictions=[dict(category_id=0, bbox=[1, 2, 3, 4])])
        (root / 'train' / f'{name}.json').write_text(json.dumps(content))
    with pytest.raises(Refusal, match=r'train/0\.json is not a COCO annotation file: .*; `labelformat`, `datumaro`'):
        find_splits(root)


@pytest.mark.parametrize('content', [[{'id': 1, 'annotations': [{'result': []}]}], {'version': '2.0', 'item': {}}])
def test_converters_are_named_for_other_json(root, content):
    for name in ('train', 'val'):
        (root / f'{name}.json').write_text(json.dumps(content))
    with pytest.raises(Refusal, match=r'is not a COCO annotation file: .*; `labelformat`, `datumaro`'):
        find_splits(root)


def test_converters_are_named_where_nothing_is_found(root):
    (root / 'train' / 'metadata.jsonl').write_text('{"file_name": "0.png", "objects": {"bbox": []}}')
    with pytest.raises(Refusal, match=r'has no annotation file for train, .* convert other formats to COCO'):
        find_splits(root)


def test_a_zip_file_is_to_be_unpacked(root, tmp_path):
    archive = shutil.make_archive(str(tmp_path / 'archive'), 'zip', root)
    with pytest.raises(Refusal, match=r'archive\.zip is a zip file; unpack it'):
        find_splits(archive)
