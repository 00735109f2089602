"""The title of a report and the confusions that it shows."""

from types import SimpleNamespace

import numpy as np
import pytest

from tokennorm.report.figures import pick_confusions
from tokennorm.report.gallery import surroundings
from tokennorm.report.page import data_name


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


def test_confusions_of_many_classes_are_summed():
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 4, (31, 31))
    matrix[[2, 17]] += 50  # the two classes with the most errors
    matrix[5, 5] = 9999  # right ones
    evaluation = SimpleNamespace(confusion=matrix, classes=[SimpleNamespace(name=f'c{i}') for i in range(30)])
    names, counts = pick_confusions(evaluation, most=2)
    assert names == ['c2', 'c17', 'other classes', 'background']
    assert counts.sum() == matrix.sum()
    assert counts[0].tolist()[:2] == matrix[2, [2, 17]].tolist()
    assert counts[0, 3] == matrix[2, 30]
    assert counts[0, 2] == matrix[2, :30].sum() - matrix[2, [2, 17]].sum()
    names, counts = pick_confusions(evaluation, most=30)
    assert names[-2:] == ['c29', 'background']
    assert (counts == matrix).all()


def test_a_box_is_in_the_middle_of_its_surroundings_within_the_image():
    assert surroundings(np.array([100.0, 50, 20, 10]), 400, 300) == (62, 7, 96, 96)
    assert surroundings(np.array([390.0, 290, 10, 10]), 400, 300) == (304, 204, 96, 96)
    assert surroundings(np.array([100.0, 50, 80, 10]), 400, 150) == (40, 0, 200, 150)
