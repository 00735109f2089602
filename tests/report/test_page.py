"""The report of a tiny dataset: its numbers, its pictures, and that nothing in it needs a network."""

import base64
import html
import json
import re

import cv2
import numpy as np
import pytest

from tests.helpers.detections import CLASSES, best_threshold, pycocotools_precision
from tests.helpers.report import Balance
from tokennorm.evaluation.analysis import evaluate
from tokennorm.evaluation.results import CocoResults
from tokennorm.report.figures import draw_precision_recall
from tokennorm.report.gallery import Gallery, Shape, as_uri
from tokennorm.report.page import curve_figures, write_report


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
    assert text.count('<img src="data:image/jpeg;base64,') > 10


def test_ap_is_from_0_to_100_in_figures(report):
    _, truth, detections, _ = report
    evaluation = evaluate(truth, detections['bbox'])
    legend = draw_precision_recall(evaluation)
    for result in evaluation.classes:
        assert f'>{result.name} ({100 * result.ap50:.1f})<' in legend
    mean = np.mean([result.ap50 for result in evaluation.classes])
    assert f'>mean of all classes ({100 * mean:.1f})<' in legend
    curve = curve_figures({'': {'coco/bbox_mAP': {1: 0.2, 2: 0.4}}}, 'epoch')['AP on the validation set']
    assert '>40<' in curve


def test_names_are_shown_as_they_are(report):
    _, truth, detections, _ = report
    names = ['_cat', 'dog $ {cow', r'$\x$ & <b>']
    categories = [dict(one, name=name) for one, name in zip(truth['categories'], names, strict=True)]
    legend = draw_precision_recall(evaluate(truth | dict(categories=categories), detections['bbox']))
    for name in names:
        assert f'{html.escape(name)} (' in legend


def test_nothing_detected_and_nothing_annotated(report, tmp_path):
    folder, truth, detections, _ = report
    nothing = dict(bbox=CocoResults(np.zeros((0, 7))))
    write_report(tmp_path / 'a.html', folder / 'val.json', nothing, folder)
    assert 'No detection is right' in (tmp_path / 'a.html').read_text()
    (tmp_path / 'empty.json').write_text(json.dumps(dict(truth, annotations=[])))
    write_report(tmp_path / 'b.html', tmp_path / 'empty.json', detections, folder)
    assert '<b>–</b><span>box AP</span>' in (tmp_path / 'b.html').read_text()  # noqa: RUF001


def test_pictures_show_what_went_wrong(report):
    folder, truth, detections, _ = report
    evaluation = evaluate(truth, detections['bbox'])
    gallery = Gallery(truth, evaluation, folder)
    worst = gallery.worst_images(3)
    for picture, errors in zip(worst, evaluation.images[:3], strict=True):
        counts = errors.false, errors.missed, errors.right
        assert picture.caption == '{} false, {} missed, {} right'.format(*counts)
        states = [shape.state for shapes in gallery.shapes(errors.image_id, 400, 400) for shape in shapes]
        assert [states.count(state) for state in ('false', 'missed', 'right', 'found')] == [*counts, counts[2]]
    best = gallery.best_images(2)
    wrong = [sum(map(int, re.findall(r'(\d+) (?:false|missed)', picture.caption))) for picture in (*best, worst[0])]
    assert wrong[0] <= wrong[1] < wrong[2]
    error = evaluation.label_errors[0]
    picture = gallery.label_errors(1)[0]
    assert error['dt_category'] in CLASSES.values()
    assert f'detected as {error["dt_category"]} with score {error["dt_score"]:.2f}' in picture.caption
    assert Gallery(truth, evaluation, folder / 'nowhere').worst_images() == []


def test_drawn_shapes_are_where_the_objects_are():
    pixels = np.full((200, 400, 3), 50, np.uint8)
    mask = np.zeros((200, 400), bool)
    mask[110:130, 220:260] = True
    shapes = [
        Shape(np.array([220.0, 100, 60, 40]), '', 'false', mask),
        Shape(np.array([10.0, 10, 20, 20]), '', 'found'),
    ]
    uri = as_uri(pixels, shapes, (200, 80, 120, 120))  # enlarged four times
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(uri.partition(',')[2]), np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape == (480, 480, 3)
    red = drawn[..., 2].astype(int) - drawn[..., 1] > 60
    rows, columns = np.nonzero(red)
    assert (rows.min(), rows.max()) == (pytest.approx(80, abs=3), pytest.approx(240, abs=3))
    assert (columns.min(), columns.max()) == (pytest.approx(80, abs=3), pytest.approx(320, abs=3))
    assert drawn[160, 160, 2] > 100 > drawn[230, 300, 2]  # in the mask, and in the box beside it
    assert (drawn[..., 1] < 120).all()  # the other one is outside
