"""The confusions that a report shows."""

from types import SimpleNamespace

import numpy as np

from tokennorm.report.figures import pick_confusions


def test_confusions_of_many_classes_are_summed():
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 4, (31, 31))
    matrix[[2, 17]] += 50  # the two classes with the most errors
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
