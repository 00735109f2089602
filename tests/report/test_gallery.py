"""Pictures of the report: what went wrong, where the objects are, and their surroundings."""

import base64
import re

import cv2
import numpy as np
import pytest

from tests.helpers.detections import CLASSES
from tokennorm.evaluation.analysis import evaluate
from tokennorm.report.gallery import Gallery, Shape, as_uri, surroundings


def test_a_box_is_in_the_middle_of_its_surroundings_within_the_image():
    assert surroundings(np.array([100.0, 50, 20, 10]), 400, 300) == (62, 7, 96, 96)
    assert surroundings(np.array([390.0, 290, 10, 10]), 400, 300) == (304, 204, 96, 96)
    assert surroundings(np.array([100.0, 50, 80, 10]), 400, 150) == (40, 0, 200, 150)


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
    uri = as_uri(pixels, shapes, (200, 80, 120, 120))  # enlarged five times and a third
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(uri.partition(',')[2]), np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape == (640, 640, 3)
    red = drawn[..., 2].astype(int) - drawn[..., 1] > 60
    rows, columns = np.nonzero(red)
    assert (rows.min(), rows.max()) == (pytest.approx(107, abs=3), pytest.approx(320, abs=3))
    assert (columns.min(), columns.max()) == (pytest.approx(107, abs=3), pytest.approx(427, abs=3))
    assert drawn[213, 213, 2] > 100 > drawn[307, 400, 2]  # in the mask, and in the box beside it
    assert (drawn[..., 1] < 120).all()  # the other one is outside
