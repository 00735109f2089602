"""Pictures of the report: what went wrong, where the objects are, and their surroundings."""

import base64
from dataclasses import replace

import cv2
import numpy as np
import pytest
from pycocotools import mask as run_lengths

from tests.helpers.detections import CLASSES
from tokennorm.evaluation.analysis import evaluate
from tokennorm.evaluation.results import CocoResults
from tokennorm.evaluation.suspects import describe
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
    scores = [float(shape.text.split()[-1]) for shape in gallery.shapes(evaluation.images[0].image_id, 400, 400)[1]]
    assert scores == sorted(scores)  # the best ones are drawn last
    assert len(set(scores)) > 2
    assert gallery.suspects(1)[0].caption == describe(evaluation.suspects[0], CLASSES)
    assert Gallery(truth, evaluation, folder / 'nowhere').worst_images() == []
    nothing = evaluation.kept.select(np.zeros(0, int))
    one = next(one for one in evaluation.suspects if one.detection)
    low, above = (
        replace(evaluation, kept=nothing, best=replace(evaluation.best, threshold=threshold), suspects=[one])
        for threshold in (1.0, 0.0)
    )
    pictures = [Gallery(truth, one, folder).suspects()[0].detections for one in (low, above)]
    assert pictures[0] != pictures[1]  # its detection is drawn although it is below the threshold


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


def test_the_best_images_have_high_scores_and_overlaps(tmp_path):
    """Four images with an object of 10 x 10 pixels: loose but sure, tight but unsure, both, and with a false box."""
    images = [dict(id=i, file_name=f'{i}.png', height=40, width=40) for i in (1, 2, 3, 4)]
    for image in images:
        cv2.imwrite(str(tmp_path / image['file_name']), np.zeros((40, 40, 3), np.uint8))
    square = [[10, 10, 20, 10, 20, 20, 10, 20]]
    objects = [
        dict(id=i, image_id=i, category_id=1, bbox=[10, 10, 10, 10], area=100, segmentation=square, iscrowd=0)
        for i in (1, 2, 3, 4)
    ]
    truth = dict(images=images, annotations=objects, categories=[dict(id=1, name='square')])
    rows = [
        [1, 10, 10, 10, 6, 0.9, 1],  # 0.6 x 0.9
        [2, 10, 10, 10, 10, 0.7, 1],  # 1.0 x 0.7
        [3, 10, 10, 10, 9, 0.9, 1],  # 0.9 x 0.9
        [4, 10, 10, 10, 10, 0.9, 1],  # 1.0 x 0.9, and an error
        [4, 30, 30, 10, 10, 0.9, 1],
    ]
    table = np.array(rows, float)
    masks = [square_mask(*row[1:5]) for row in rows]
    for kind, found in (('bbox', CocoResults(table)), ('segm', CocoResults(table, masks))):
        evaluation = evaluate(truth, found, kind)
        gallery = Gallery(truth, evaluation, tmp_path)
        qualities = {e.image_id: gallery.quality(e) for e in evaluation.images}
        assert qualities == pytest.approx({1: 0.54, 2: 0.7, 3: 0.81, 4: 0.45}, abs=1e-6), kind
        assert (
            gallery.quality(replace(evaluation.images[-1], missed=1)) == qualities[evaluation.images[-1].image_id] / 2
        )
        assert [picture.file_name for picture in gallery.best_images(3)] == ['3.png', '2.png', '1.png']


def square_mask(x, y, width, height):
    """Run lengths of a rectangle in an image of 40 x 40 pixels."""
    mask = np.zeros((40, 40), np.uint8, order='F')
    mask[y : y + height, x : x + width] = 1
    encoded = run_lengths.encode(mask)
    return dict(size=encoded['size'], counts=encoded['counts'].decode())
