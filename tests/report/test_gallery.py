"""Pictures of the report: what went wrong, where the objects are, and their surroundings."""

import base64
from dataclasses import replace

import cv2
import numpy as np
import pytest
from pycocotools import mask as run_lengths

from tests.helpers.detections import CLASSES
from tokennorm.evaluation.analysis import ImageErrors, evaluate
from tokennorm.evaluation.results import CocoResults
from tokennorm.evaluation.suspects import describe
from tokennorm.report.gallery import Gallery, Shape, as_uri, place, surroundings


def test_a_box_is_in_the_middle_of_its_surroundings_within_the_image():
    assert surroundings(np.array([100.0, 50, 20, 10]), 400, 300) == (62, 7, 96, 96)
    assert surroundings(np.array([390.0, 290, 10, 10]), 400, 300) == (304, 204, 96, 96)
    assert surroundings(np.array([100.0, 50, 80, 10]), 400, 150) == (40, 0, 200, 150)
    assert surroundings(np.array([-np.inf, np.nan, np.inf, np.inf]), 400, 150) == (0, 0, 400, 150)


def test_pictures_show_what_went_wrong(report):
    folder, truth, detections, _ = report
    evaluation = evaluate(truth, detections['bbox'])
    gallery = Gallery(truth, evaluation, folder)
    worst = gallery.worst_images(3)
    for picture, errors in zip(worst, evaluation.images[:3], strict=True):
        counts = errors.false, errors.missed, errors.right
        assert picture.caption == '{} false, {} missed, {} right'.format(*counts)
        shapes = [one for some in gallery.shapes(errors.image_id, 400, 400) for one in some if one.is_shown]
        states = [shape.state for shape in shapes]
        assert [states.count(state) for state in ('false', 'missed', 'right', 'found')] == [*counts, counts[2]]
    objects, detections = gallery.shapes(evaluation.images[0].image_id, 400, 400)
    scores = [shape.score for shape in detections]
    assert scores == sorted(scores)  # the best ones are drawn last
    assert all(shape.is_shown == (shape.score >= evaluation.threshold) for shape in detections)
    assert {one.score for one in objects if one.state == 'found'} <= set(scores)
    assert all(one.score is None or one.score < evaluation.threshold for one in objects if one.state == 'missed')
    assert len(set(scores)) > 2
    assert gallery.suspects(1)[0].caption == describe(evaluation.suspects[0], CLASSES)
    assert Gallery(truth, evaluation, folder / 'nowhere').worst_images() == []


def test_drawn_shapes_are_where_the_objects_are():
    mask = np.zeros((200, 400), bool)
    mask[110:130, 220:260] = True
    mask[116:124, 230:250] = False
    shapes = [
        Shape(np.array([220.0, 100, 60, 40]), 'a name with more than eighteen characters', 'false', mask, 0.876),
        Shape(np.array([10.0, 10, 20, 20]), '', 'found'),
        Shape(np.array([310.0, 190, 20, 20]), 'cat', 'missed'),
    ]
    uri, size = as_uri(np.full((200, 400, 3), 50, np.uint8), (200, 80, 120, 120))  # enlarged five times and a third
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(uri.partition(',')[2]), np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape[:2] == size == (640, 640)
    first, second = place(shapes, (200, 80, 120, 120), size)  # the other one is outside
    assert (first.box, second.box) == ([107, 107, 320, 213], [587, 587, 106, 106])
    assert (first.text, first.title) == ('a nam...cters 0.88', 'a name with more than eighteen characters 0.88')
    assert (second.text, second.title) == ('cat', 'cat')
    parts = [np.array(part.split(), int).reshape(-1, 2) for part in first.outline[1:-1].split('ZM')]
    outer, hole = sorted(parts, key=np.ptp, reverse=True)
    assert [*outer.min(0), *outer.max(0)] == pytest.approx([107, 160, 320, 266], abs=2)
    assert [*hole.min(0), *hole.max(0)] == pytest.approx([160, 192, 266, 234], abs=3)


@pytest.mark.parametrize(('count', 'state', 'seen'), [(5, 'found', 5), (20, 'found', 0), (20, 'missed', 20)])
def test_many_shapes_have_texts_where_they_are_errors(count, state, seen):
    shapes = [Shape(np.array([90.0 * (i % 5), 60 * (i // 5), 40, 30]), 'cat', state, score=0.5) for i in range(count)]
    drawn = place(shapes, (0, 0, 480, 300), (640, 400))
    assert [one.shape for one in drawn] == shapes
    assert sum(not one.is_quiet for one in drawn) == seen


def test_texts_cover_no_other_text():
    """Of errors at one place four have room for a text; they precede what is right, and a tiny one has none."""
    shapes = [Shape(np.array([100.0, 100, 60, 60]), 'cat', state) for state in ('found', *['missed'] * 6)]
    tiny = Shape(np.array([300.0, 100, 6, 60]), 'cat', 'missed')
    drawn = place([*shapes, tiny], (0, 0, 640, 400), (640, 400))
    loud = [one.at for one in drawn if not one.is_quiet]
    assert drawn[0].is_quiet
    assert drawn[-1].is_quiet
    assert len(set(loud)) == len(loud) == 4


def test_a_suspect_has_a_text_and_its_neighbors_have_none():
    """The box in question is right, among errors that meet it and others."""
    subject = Shape(np.array([100.0, 100, 60, 60]), 'cat', 'found')
    others = [Shape(np.array([x, y, 50.0, 50]), 'dog', 'missed') for x in (0.0, 90, 220) for y in (0.0, 90, 220)]
    drawn = place([*others, subject], (0, 0, 300, 300), (640, 640), around=subject.box)
    assert [one.text for one in drawn if not one.is_quiet] == ['dog', 'cat']
    assert drawn[-1].at == (213, 204, False)  # above its box, as if it were the only one


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
    equal = replace(evaluation, images=[ImageErrors(1, 0, 0, right=1), ImageErrors(2, 0, 0, right=2)])
    gallery = Gallery(truth, equal, tmp_path)
    gallery.quality = lambda errors: 0.9
    assert [picture.file_name for picture in gallery.best_images()] == ['2.png', '1.png']


def square_mask(x, y, width, height):
    """Run lengths of a rectangle in an image of 40 x 40 pixels."""
    mask = np.zeros((40, 40), np.uint8, order='F')
    mask[y : y + height, x : x + width] = 1
    encoded = run_lengths.encode(mask)
    return dict(size=encoded['size'], counts=encoded['counts'].decode())
