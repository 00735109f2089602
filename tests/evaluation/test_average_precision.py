"""COCO's average precision and recall of arrays that are counted by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from tokennorm.evaluation.average_precision import average_precision, average_recall


@pytest.fixture
def evaluation():
    """Two IoU thresholds, three recall levels, two classes, four areas, two limits; -1 where no object counts."""
    precision = np.zeros((2, 3, 2, 4, 2))
    precision[0, :, 0, 0, 1], precision[0, :, 1, 0, 1] = [1.0, 0.8, 0.6], [0.4, 0.2, 0.0]
    precision[1, :, 0, 0, 1], precision[1, :, 1, 0, 1] = [0.6, 0.3, 0.0], [0.2, 0.1, 0.0]
    precision[..., 0, 0] = precision[..., 0, 1] / 2  # fewer detections count
    precision[..., 1, 2, :], precision[..., 0, 2, :] = -1, 0.5  # medium objects of one class only
    precision[..., 3, :] = -1  # no large objects
    recall = np.zeros((2, 2, 4, 2))
    recall[:, :, 0, 1], recall[:, :, 2, 1], recall[:, :, 3, :] = [[0.9, 0.7], [0.5, 0.1]], [[0.6, -1], [0.2, -1]], -1
    params = SimpleNamespace(iou_thrs=np.array([0.5, 0.75]))
    return SimpleNamespace(eval=dict(precision=precision, recall=recall), params=params)


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        ({}, 0.35),
        (dict(iou=0.5), 0.5),
        (dict(iou=0.75), 0.2),
        (dict(label=0), 0.55),
        (dict(label=1, iou=0.5), 0.2),
        (dict(limit=0), 0.175),
        (dict(area='medium'), 0.5),
        (dict(area='small'), 0.0),
        (dict(area='large'), -1.0),
        (dict(area='medium', label=1), -1.0),
    ],
)
def test_average_precision_of_a_part(evaluation, arguments, expected):
    assert average_precision(evaluation, **arguments) == pytest.approx(expected)


def test_average_recall_of_a_part(evaluation):
    assert average_recall(evaluation) == pytest.approx(0.55)
    assert average_recall(evaluation, limit=0) == 0.0
    assert average_recall(evaluation, area='medium') == pytest.approx(0.4)
    assert average_recall(evaluation, area='large') == -1.0
