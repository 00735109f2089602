"""The report of a tiny dataset: its title and numbers, and that nothing in it needs a network."""

import json
import os
import re

import numpy as np
import pytest

from tests.helpers.detections import CLASSES, best_threshold, pycocotools_precision
from tests.helpers.report import Balance
from tokennorm.evaluation.analysis import evaluate
from tokennorm.evaluation.results import CocoResults
from tokennorm.report.page import data_name, write_page, write_report


def parse(folder):
    page = Balance()
    page.feed((folder / 'report.html').read_text())
    assert page.open == []
    return page


def test_the_numbers_are_those_of_pycocotools(report):
    """AP by pycocotools, and the recommended thresholds by trying each score: on the page and in the files."""
    folder, truth, detections, numbers = report
    page = parse(folder)
    rows = {row[0]: row[1:] for row in page.rows if len(row) == 9}
    thresholds = json.loads((folder / 'thresholds.json').read_text())['classes']
    for (category_id, name), entry in zip(CLASSES.items(), numbers['results']['bbox']['classes'], strict=True):
        precision = pycocotools_precision(truth, detections['bbox'], [category_id])[..., 0, -1]
        best = best_threshold(truth, detections['bbox'], category_id)
        objects = [a for a in truth['annotations'] if a['category_id'] == category_id]
        assert rows[name][:7] == [
            str(len({a['image_id'] for a in objects})),
            str(len(objects)),
            *(f'{100 * value:.1f}' for value in (precision.mean(), precision[0].mean())),
            f'{int(best["threshold"] * 1000) / 1000:.3f}',
            *(f'{100 * best[key]:.1f}' for key in ('precision', 'recall')),
        ]
        assert entry['best'] == pytest.approx(best)
        assert thresholds[name] == best['threshold']
    precision = pycocotools_precision(truth, detections['bbox'], list(CLASSES))[..., -1]
    values = [precision[..., 0], precision[0, ..., 0], precision[5, ..., 0]]
    values = [100 * value[value > -1].mean() for value in values]
    text = (folder / 'report.html').read_text()
    for value, label in zip(values, ('AP', 'AP50', 'AP75'), strict=True):
        assert f'<b>{value:.1f}</b><span>box {label}</span>' in text
    assert f'coco/bbox_mAP, from 0 to 1: {values[0] / 100:.3f} there is {values[0]:.1f} here' in text
    assert 'tiny &lt;run&gt;' in text
    assert json.loads((folder / 'report.json').read_text()) == numbers


def test_the_confusion_matrix_has_its_counts(report):
    folder, truth, detections, _ = report
    expected = evaluate(truth, detections['bbox']).confusion
    page = parse(folder)
    start = next(i for i, row in enumerate(page.rows) if row and row[0].startswith('object'))
    found = [[0 if text == '·' else int(text or 0) for text in row[1:]] for row in page.rows[start + 1 : start + 5]]
    assert found == expected.tolist()


def test_nothing_is_loaded_from_elsewhere(report):
    folder, *_ = report
    page = parse(folder)
    assert {reference.split(':')[0][:1] for reference in page.references} <= {'#', 'd'}
    text = (folder / 'report.html').read_text()
    assert not re.search(r'(?:src|href|url)\s*[=(]\s*["\']?(?:https?:)?//', text)
    assert text.count('href="data:image/jpeg;base64,') > 10


@pytest.mark.usefixtures('plain_files')
def test_nothing_detected_and_nothing_annotated(report, tmp_path):
    folder, truth, detections, _ = report
    nothing = dict(bbox=CocoResults(np.zeros((0, 7))))
    write_report(tmp_path / 'a.html', folder / 'val.json', nothing, folder)
    assert 'No detection is right' in (tmp_path / 'a.html').read_text()
    (tmp_path / 'empty.json').write_text(json.dumps(dict(truth, annotations=[])))
    write_report(tmp_path / 'b.html', tmp_path / 'empty.json', detections, folder)
    assert '<b>–</b><span>box AP</span>' in (tmp_path / 'b.html').read_text()  # noqa: RUF001


@pytest.mark.parametrize(
    ('source', 'images'),
    [
        ('{}/annotations/val.json', '{}/images/val'),
        ('{}/val/_annotations.coco.json', '{}/val'),
        ('Pascal VOC labels of {}', '{}'),  # no path: it must not be taken for one of the folder of the command
        ('YOLO labels of {}', '{}'),
    ],
)
def test_a_report_has_the_name_of_the_data(tmp_path, monkeypatch, source, images):
    data = tmp_path / 'raccoons'
    source, images = source.format(data), images.format(data)
    for folder in (data / 'annotations', data / 'val', data / 'images' / 'val'):
        folder.mkdir(parents=True)
    (data / 'annotations' / 'val.json').touch()
    (data / 'val' / '_annotations.coco.json').touch()
    monkeypatch.chdir(tmp_path)
    assert data_name(dict(tokennorm=dict(source=source, images=images)), 'cache/val-1.json', None) == 'raccoons'


def test_a_report_has_the_name_of_the_data_whose_images_are_a_link(tmp_path):
    (tmp_path / 'raccoons' / 'annotations').mkdir(parents=True)
    (source := tmp_path / 'raccoons' / 'annotations' / 'val.json').touch()
    (images := tmp_path / 'raccoons' / 'images').symlink_to('/')
    assert data_name({}, source, images) == 'raccoons'
    assert data_name({}, source, '/') == 'raccoons'


def test_a_page_may_name_a_file_of_any_bytes(tmp_path):
    write_page(tmp_path / 'a.html', 'größe ' + os.fsdecode(b'caf\xe9.png'))
    assert (tmp_path / 'a.html').read_bytes() == 'größe caf\\udce9.png'.encode()
