"""Converted annotations: kept until a file or the code changes, in a cache that can be written."""

from pathlib import Path

import pytest

from tests.helpers.folders import write_yolo
from tokennorm.datasets.finding import find_splits
from tokennorm.messages import UserError


def test_a_conversion_is_kept_until_a_file_changes(coco, tmp_path, monkeypatch):
    root = write_yolo(coco, tmp_path / 'yolo')
    before = find_splits(root)['train']
    monkeypatch.setattr('tokennorm.datasets.converted._convert', None)  # not called
    assert find_splits(root)['train'].content == before.content
    monkeypatch.undo()
    monkeypatch.setenv('TOKENNORM_CACHE', str(before.ann_file.parents[2]))
    label = next(iter((root / 'labels' / 'train').iterdir()))
    label.write_text('3 0.5 0.5 0.5 0.25\n')
    content = find_splits(root)['train'].content
    (image,) = (i for i in content['images'] if Path(i['file_name']).stem == label.stem)
    (a,) = (a for a in content['annotations'] if a['image_id'] == image['id'])
    assert (a['bbox'], a['area'], a['category_id']) == ([16, 24, 32, 16], 512, 4)


def test_other_code_converts_again(coco, tmp_path, cache, monkeypatch):
    root = write_yolo(coco, tmp_path / 'yolo')
    first, again = (find_splits(root)['train'].ann_file for _ in range(2))
    monkeypatch.setattr('tokennorm.datasets.splits._code', lambda: b'of another version')
    assert first == again != find_splits(root)['train'].ann_file


def test_a_cache_that_cannot_be_written_is_named(coco, tmp_path, monkeypatch):
    (tmp_path / 'file').touch()
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'file'))
    with pytest.raises(UserError, match=r'which TOKENNORM_CACHE sets: .*Not a directory'):
        find_splits(write_yolo(coco, tmp_path / 'yolo'))
