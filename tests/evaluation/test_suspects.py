"""Suspects: planted errors are found as what they are, clean annotations are not, and scores by hand."""

import copy
from collections import Counter

import numpy as np
import pytest
from pycocotools import mask as run_lengths

from tests.helpers.detections import CLASSES, make_truth, noisy, perfect, removed_labels, shifted_boxes, wrong_classes
from tokennorm.evaluation.analysis import evaluate
from tokennorm.evaluation.results import CocoResults
from tokennorm.evaluation.suspects import as_rows, credibility, describe


def invented_boxes(truth, count):
    for annotation in truth['annotations'][:count]:
        box = [annotation['bbox'][0] + 62, annotation['bbox'][1] + 62, 25, 25]
        truth['annotations'].append(dict(annotation, id=annotation['id'] + 1000, bbox=box))


PLANTED = {
    'wrong class': wrong_classes,
    'wrong box': shifted_boxes,
    'missing': removed_labels,
    'spurious': invented_boxes,
}


@pytest.mark.parametrize('kind', PLANTED)
@pytest.mark.parametrize('scale', [1, 0.3])
def test_planted_errors_are_suspects_of_their_kind(kind, scale):
    """Whatever the scale of the scores."""
    truth = make_truth()
    detections = perfect(truth)
    detections.table[:, 5] = scale * np.linspace(0.99, 0.6, len(detections))
    faulty = copy.deepcopy(truth)
    PLANTED[kind](faulty, 20)
    suspects = evaluate(faulty, detections).suspects
    assert Counter(one.kind for one in suspects) == {kind: 20}
    scores = [one.score for one in suspects]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] <= 1


def test_right_annotations_are_not_listed():
    truth = make_truth()
    detections = perfect(truth)
    assert evaluate(truth, detections).suspects == []
    low = noisy(truth).table * [1, 1, 1, 1, 1, 0.1, 1]  # false detections, as a detector has many with low scores
    assert evaluate(truth, CocoResults(np.concatenate([detections.table, low]))).suspects == []


def test_kinds_take_turns():
    suspects = evaluate(truth := make_truth(), noisy(truth)).suspects
    counts = Counter(one.kind for one in suspects)
    first = [one.kind for one in suspects[: 4 * min(counts.values())]]
    for i in range(0, len(first), 4):
        assert sorted(first[i : i + 4]) == sorted(PLANTED)
    for kind in PLANTED:
        scores = [one.score for one in suspects if one.kind == kind]
        assert scores == sorted(scores, reverse=True)
    for four in (suspects[i : i + 4] for i in range(0, len(first), 4)):
        assert [one.score for one in four] == sorted((one.score for one in four), reverse=True)


def one_image(objects, detections, crowd=()):
    """Truth and detections of one image of 100 pixels: (class, x, width) and (class, x, width, score)."""
    annotations = [
        dict(id=i, image_id=1, category_id=k, bbox=[x, 0, w, 10], area=10 * w, iscrowd=int(i in crowd))
        for i, (k, x, w) in enumerate(objects, 1)
    ]
    categories = [dict(id=i, name=name) for i, name in CLASSES.items()]
    images = [dict(id=1, file_name='a.jpg', width=1000, height=100)]
    table = np.array([[1, x, 0, w, 10, score, k] for k, x, w, score in detections], float).reshape(-1, 7)
    return dict(images=images, annotations=annotations, categories=categories), CocoResults(table)


def test_scores_by_hand():
    """Three right cats of four detections above 0.5: the credibility of each is 3/4, as the first is the false one."""
    right = [(2, x, 10, 0.8) for x in (100, 200, 300)]
    truth, detections = one_image([(2, x, 10) for x in (100, 200, 300)], [(2, 0, 10, 0.9), *right])
    (one,) = evaluate(truth, detections).suspects
    assert (one.kind, one.score, one.annotation) == ('missing', pytest.approx(0.75), None)
    truth['annotations'].append(dict(truth['annotations'][0], id=9, bbox=[6, 0, 10, 10]))  # IoU 4 / 16
    (one,) = evaluate(truth, detections).suspects
    assert (one.kind, one.score, one.annotation['id']) == ('wrong box', pytest.approx(0.75 * 0.75), 9)
    truth['annotations'][-1].update(bbox=[0, 0, 10, 10], category_id=5)
    (one,) = evaluate(truth, detections).suspects
    assert (one.kind, one.score) == ('wrong class', pytest.approx(0.75))
    assert describe(one, CLASSES) == 'wrong class (0.75): annotated as dog, detected as cat with score 0.90'
    dogs = [(5, 400, 10), (5, 500, 10)]  # and a detection with IoU 4 / 16, as credible as 2/3: the box may be wrong
    truth, detections = one_image(
        [(5, 0, 10), *((2, x, 10) for x in (100, 200, 300)), *dogs],
        [(2, 0, 10, 0.9), *right, (5, 6, 10, 0.9), *((*dog, 0.8) for dog in dogs)],
    )
    (one,) = evaluate(truth, detections).suspects
    assert (one.kind, one.score) == ('wrong class', pytest.approx(0.75))  # which is more suspicious


def test_scores_of_spurious_objects_by_hand():
    """One of ten cats without a detection; another one with a detection that is half as credible."""
    found = [(2, 100 * i, 10, 0.8) for i in range(8)]
    cats = [(2, 100 * i, 10) for i in range(10)]
    truth, detections = one_image(cats, [*found, (2, 805, 10, 0.1), (2, 1200, 10, 0.1)])
    one, *others = [one for one in evaluate(truth, detections).suspects if one.kind == 'spurious']
    assert (one.annotation['id'], others) == (10, [])
    assert one.score == pytest.approx(1 - 5 / 10)
    assert describe(one, dict.fromkeys(CLASSES, '')) == 'spurious (0.50): annotated, not detected'


def test_neighbors_duplicates_and_crowds_are_not_listed():
    cats = [(2, x, 10) for x in (100, 200, 205, 300)]
    found = [(2, x, 10, 0.9) for x in (100, 200, 205, 300)]
    truth, detections = one_image(cats, found)
    assert evaluate(truth, detections).suspects == []
    duplicate = one_image(cats, [*found, (2, 101, 10, 0.1)])[1]
    assert evaluate(truth, duplicate).suspects == []
    truth, detections = one_image([*cats, (2, 500, 100)], [*found, (2, 550, 10, 0.9)], crowd={5})
    assert evaluate(truth, detections).suspects == []


def test_one_place_is_one_suspect():
    cats = [(2, x, 10) for x in range(100, 900, 100)]
    found = [(2, x, 10, 0.9) for x in range(100, 900, 100)]
    truth, detections = one_image(cats[1:], [*found, (2, 102, 10, 0.9), (2, 98, 10, 0.9)])
    assert [one.kind for one in evaluate(truth, detections).suspects] == ['missing']


def test_nothing_detected_and_nothing_annotated():
    truth, detections = one_image([(2, 100, 10)], [])
    assert evaluate(truth, detections).suspects == []  # a detector that finds nothing says nothing
    truth, detections = one_image([], [(2, 100, 10, 0.9)])
    assert evaluate(truth, detections).suspects == []  # no detection is ever right


def test_masks_are_compared_as_masks():
    """A mask of the left half, whose box is right, in one of eight images."""
    truth = make_truth(num_images=8)
    masks = []
    for annotation in truth['annotations']:
        x, y, w, h = annotation['bbox']
        annotation['segmentation'] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        (packed,) = run_lengths.frPyObjects(annotation['segmentation'], 400, 400)
        masks.append(dict(packed, counts=packed['counts'].decode()))
    detections = CocoResults(perfect(truth).table, masks)
    assert evaluate(truth, detections, 'segm').suspects == []
    x, y, w, h = truth['annotations'][0]['bbox']
    truth['annotations'][0]['segmentation'] = [[x, y, x + 0.3 * w, y, x + 0.3 * w, y + h, x, y + h]]
    (one,) = evaluate(truth, detections, 'segm').suspects
    assert (one.kind, one.annotation['id']) == ('wrong box', 1)
    assert evaluate(truth, CocoResults(detections.table)).suspects == []


def test_credibility_rises_with_the_score():
    detections = noisy(make_truth())
    right = np.random.default_rng(0).random(len(detections)) < detections.scores
    values = credibility(detections, right, np.ones(len(detections), bool))
    for category in CLASSES:
        own = np.flatnonzero(detections.table[:, 6] == category)
        assert (np.diff(values[own[np.argsort(detections.scores[own])]]) >= 0).all()
        assert values[own].mean() == pytest.approx(right[own].mean())


def test_rows_have_names_and_the_ids_of_the_user():
    truth = make_truth(num_images=8)
    detections = perfect(truth)
    truth['annotations'][0].update(category_id=9 if truth['annotations'][0]['category_id'] != 9 else 2, original_id='x')
    (row,) = as_rows(evaluate(truth, detections).suspects, truth)
    expected = dict(file='1.jpg', kind='wrong class', id=1, annotation_id='x', box=truth['annotations'][0]['bbox'])
    assert {key: row[key] for key in expected} == expected
    assert row['annotated'] == CLASSES[truth['annotations'][0]['category_id']] != row['detected']
    assert row['detection_score'] == 0.9
