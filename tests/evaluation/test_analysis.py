"""The report's evaluation: by hand, against tidecv and supervision, and with faults planted in the annotations."""

import copy
import math

import numpy as np
import pytest
from pycocotools import mask as run_lengths

from tests.helpers.detections import (
    CLASSES,
    SIDE,
    make_truth,
    noisy,
    perfect,
    pycocotools_precision,
    removed_labels,
    shifted_boxes,
    wrong_classes,
)
from tokennorm.evaluation.analysis import best_point, evaluate, select_categories, sweep_thresholds
from tokennorm.evaluation.results import CocoResults


def test_best_threshold_by_hand():
    """Four objects; detections right, right, false, right, false. F1 is best at the fourth: 2 x 3 / (4 + 4)."""
    scores = np.array([0.3, 0.9, 0.5, 0.6, 0.8])
    right = np.array([False, True, True, False, True])
    best = best_point(sweep_thresholds(scores, right, 4))
    assert best.threshold == 0.5
    assert (best.precision, best.recall, best.f1) == (3 / 4, 3 / 4, 6 / 8)


def test_equal_scores_are_one_threshold():
    """Three objects; a threshold cannot part the two detections of 0.5."""
    sweep = sweep_thresholds(np.array([0.5, 0.9, 0.5]), np.array([False, True, True]), 3)
    np.testing.assert_allclose(sweep, [[0.9, 1, 1 / 3, 1 / 2], [0.5, 2 / 3, 2 / 3, 2 / 3]])


def test_ap_is_that_of_pycocotools():
    """The summary over all classes, and AP and AP50 of each class; no two of the values are equal."""
    truth = make_truth()
    detections = noisy(truth)
    detections.table[:, 1:3] += np.random.default_rng(0).uniform(-3, 3, (len(detections), 2))
    result = evaluate(truth, detections)
    precision = pycocotools_precision(truth, detections, list(CLASSES))[..., -1]
    chosen = [precision[..., 0], precision[0, ..., 0], precision[5, ..., 0], precision[..., 1], precision[..., 2]]
    expected = [values[values > -1].mean() for values in chosen]
    assert list(result.summary.values()) == pytest.approx([*expected, -1])  # no object is large
    assert min(np.diff(sorted([*expected, precision[4, ..., 0].mean(), precision[6, ..., 0].mean()]))) > 0.002
    for category_id, entry in zip(CLASSES, result.classes, strict=True):
        precision = pycocotools_precision(truth, detections, [category_id])[..., 0, -1]
        assert (entry.ap, entry.ap50) == (pytest.approx(precision.mean()), pytest.approx(precision[0].mean()))
        assert entry.ap50 - entry.ap > 0.1


def test_perfect_detections():
    truth = make_truth()
    result = evaluate(truth, perfect(truth))
    assert result.summary['mAP'] == pytest.approx(1)
    assert result.threshold == 0.9
    assert sum(result.tide.values()) == pytest.approx(0)
    assert result.confusion.tolist() == np.diag([*(c.objects for c in result.classes), 0]).tolist()
    assert sum(c.objects for c in result.classes) == len(truth['annotations'])
    assert all(errors.false == errors.missed == 0 for errors in result.images)
    assert [(c.name, c.ap, c.best.f1) for c in result.classes] == [(n, pytest.approx(1), 1) for n in CLASSES.values()]


def test_low_scores_do_not_make_every_image_bad():
    """Noise below the best threshold changes neither the worst images nor the confusion matrix."""
    truth = make_truth()
    clean = perfect(truth)
    noise = noisy(truth, seed=3).table
    noise[:, 5] *= 0.1
    result = evaluate(truth, CocoResults(np.concatenate([clean.table, noise])))
    assert result.threshold == 0.9
    assert sum(errors.false + errors.missed for errors in result.images) == 0
    assert result.confusion.sum() == len(truth['annotations'])


def test_of_equally_many_errors_those_with_fewer_right_detections_are_worse():
    truth = make_truth(3)
    del truth['annotations'][7:12]  # image 2 has one object, the others six
    found = perfect(truth)
    result = evaluate(truth, found.select(~np.isin(np.arange(len(found)), [0, 6])))  # one of image 1, that of image 2
    assert [(one.image_id, one.missed, one.right) for one in result.images] == [(2, 1, 0), (1, 1, 5), (3, 0, 6)]


@pytest.mark.parametrize(('plant', 'column'), [(wrong_classes, 'Cls'), (shifted_boxes, 'Loc'), (removed_labels, 'Bkg')])
def test_planted_faults_show_up_in_their_column(plant, column):
    truth = make_truth()
    detections = perfect(truth)
    # Faulty annotations meet the more confident detections, so that each of them costs AP.
    detections.table[:, 5] = np.linspace(0.99, 0.6, len(detections))
    faulty = copy.deepcopy(truth)
    plant(faulty, 20)
    result = evaluate(faulty, detections)
    assert max(result.tide, key=result.tide.get) == column
    assert result.tide[column] > 0.05
    assert {key: count for key, count in result.error_counts.items() if count} == {column: 20}


def test_tide_is_that_of_tidecv():
    tidecv = pytest.importorskip('tidecv')
    truth = make_truth()
    detections = noisy(truth)
    ours = evaluate(truth, detections)
    gt = tidecv.Data('gt')
    dt = tidecv.Data('dt')
    for category_id, name in CLASSES.items():
        gt.add_class(category_id, name)
        dt.add_class(category_id, name)
    for image in truth['images']:
        gt.add_image(image['id'], image['file_name'])
    for a in truth['annotations']:
        gt.add_ground_truth(a['image_id'], a['category_id'], a['bbox'])
    for row in detections.table:
        dt.add_detection(int(row[0]), int(row[6]), row[5], row[1:5].tolist())
    run = tidecv.TIDE().evaluate(gt, dt, mode=tidecv.TIDE.BOX)
    assert ours.summary['mAP_50'] == pytest.approx(run.ap / 100, abs=2e-3)
    errors = {type(e).__name__ if not isinstance(e, type) else e.__name__: v for e, v in run.fix_main_errors().items()}
    names = dict(Cls='ClassError', Loc='BoxError', Both='OtherError', Dupe='DuplicateError', Bkg='BackgroundError')
    names['Miss'] = 'MissedError'
    expected = {key: errors[name] / 100 for key, name in names.items()}
    assert min(expected.values()) >= 0
    assert sum(value > 0.002 for value in expected.values()) >= 4
    assert ours.tide == pytest.approx(expected, abs=3e-3)


def test_confusion_matrix_is_that_of_supervision():
    """Without duplicates: of two detections of an object, supervision prefers the class, hotcoco the score."""
    supervision = pytest.importorskip('supervision')
    truth = make_truth()
    result = evaluate(truth, noisy(truth, duplicates=0))
    index = {category_id: i for i, category_id in enumerate(CLASSES)}
    predictions, targets = [], []
    for image in truth['images']:
        objects = [a for a in truth['annotations'] if a['image_id'] == image['id']]
        boxes = np.array([a['bbox'] for a in objects])
        labels = np.array([index[a['category_id']] for a in objects])
        targets.append(supervision.Detections(supervision.xywh_to_xyxy(boxes), class_id=labels))
        found = result.kept.table[result.kept.table[:, 0] == image['id']]
        labels = np.array([index[int(i)] for i in found[:, 6]], int)
        boxes = supervision.xywh_to_xyxy(found[:, 1:5])
        predictions.append(supervision.Detections(boxes, confidence=found[:, 5], class_id=labels))
    expected = supervision.ConfusionMatrix.from_detections(
        predictions, targets, list(CLASSES.values()), conf_threshold=0, iou_threshold=0.5
    )
    assert result.confusion.tolist() == expected.matrix.astype(int).tolist()


def test_crowds_neither_count_as_objects_nor_make_errors():
    truth = make_truth(num_images=2)
    detections = perfect(truth)
    crowd = dict(truth['annotations'][0], id=1000, bbox=[300.0, 300.0, 90.0, 90.0], area=8100.0, iscrowd=1)
    crowd['image_id'] = 1
    truth['annotations'] = [
        a for a in truth['annotations'] if not (a['image_id'] == 1 and min(a['bbox'][:2]) >= 300)
    ] + [crowd]
    inside = [[1, 310.0, 310.0, 30.0, 30.0, 0.95, crowd['category_id']]]
    kept = [row for row in detections.table.tolist() if not (row[0] == 1 and min(row[1:3]) >= 300)]
    result = evaluate(truth, CocoResults(np.array(kept + inside)))
    assert result.summary['mAP'] == pytest.approx(1)
    assert (result.best.precision, result.best.recall) == (1, 1)
    assert len(result.kept) == len(truth['annotations']) - 1 == sum(c.objects for c in result.classes)
    assert result.confusion.sum() == result.confusion.trace() == len(result.kept)


def test_a_class_without_objects_has_no_ap():
    truth = make_truth()
    truth['annotations'] = [a for a in truth['annotations'] if a['category_id'] != 5]
    result = evaluate(truth, perfect(truth))
    assert [(c.name, c.objects, c.ap) for c in result.classes if c.objects == 0] == [('dog', 0, None)]
    assert result.summary['mAP'] == pytest.approx(1)


def test_more_than_100_objects_count_where_asked():
    content = dict(
        images=[dict(id=1, file_name='a.jpg', width=SIDE, height=SIDE)],
        annotations=[
            dict(id=i + 1, image_id=1, category_id=2, bbox=[i % 15 * 20, i // 15 * 20, 10, 10], area=100, iscrowd=0)
            for i in range(150)
        ],
        categories=[dict(id=2, name='cat')],
    )
    table = perfect(content).table
    table[:, 5] = np.linspace(0.9, 0.5, 150)
    assert evaluate(content, CocoResults(table)).summary['mAP'] == pytest.approx(0.67, abs=0.01)
    assert evaluate(content, CocoResults(table), max_detections=150).summary['mAP'] == pytest.approx(1)


def test_select_categories_drops_other_classes():
    truth = make_truth(num_images=3)
    chosen = select_categories(truth, [9, 2])
    assert [c['id'] for c in chosen['categories']] == [2, 9]
    assert {a['category_id'] for a in chosen['annotations']} == {2, 9}
    assert len(chosen['images']) == 3


def test_masks_are_evaluated_as_masks():
    """Masks of half the boxes: right as boxes, IoU 1/2 as masks."""
    truth = make_truth(num_images=4)
    masks = []
    for annotation in truth['annotations']:
        x, y, w, h = (math.floor(v / 2) * 2 for v in annotation['bbox'])
        annotation.update(bbox=[x, y, w, h], area=w * h)
        for width, target in ((w, annotation), (w // 2, None)):
            mask = np.zeros((SIDE, SIDE), np.uint8, order='F')
            mask[y : y + h, x : x + width] = 1
            encoded = run_lengths.encode(mask)
            encoded = dict(size=list(encoded['size']), counts=encoded['counts'].decode())
            if target is None:
                masks.append(encoded)
            else:
                target['segmentation'] = encoded
    table = perfect(truth).table
    assert evaluate(truth, CocoResults(table)).summary['mAP'] == pytest.approx(1)
    result = evaluate(truth, CocoResults(table, masks), 'segm')
    assert (result.summary['mAP'], result.summary['mAP_50']) == (pytest.approx(0.1), pytest.approx(1))
    assert result.right.all()
