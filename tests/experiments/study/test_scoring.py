"""Scores per image: AP on resampled images against COCOeval on copied images, and accuracies as bits."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from experiments.study.scoring import image_scores, pack, resampled_ap, resamples, unpack


def coco(images, boxes):
    """`boxes`: image, class, x, and for a detection its score; all 20 x 20 pixels."""
    rows = [
        dict(id=i + 1, image_id=int(n), category_id=int(k), bbox=[float(x), 0.0, 20.0, 20.0], area=400.0, iscrowd=0)
        | dict(score=float(score[0]) if len(score) else 0.0)
        for i, (n, k, x, *score) in enumerate(boxes)
    ]
    found = COCO()
    found.dataset = dict(images=[dict(id=i) for i in images], categories=[dict(id=1), dict(id=2)], annotations=rows)
    with contextlib.redirect_stdout(io.StringIO()):
        found.createIndex()
    return found


@pytest.fixture
def case():
    """Six images with objects of two classes, found up to some pixels and with random scores, and false detections."""
    rng = np.random.default_rng(1)
    truth = [(n, k, 100 * k) for n in range(6) for k in (1, 2) if (n, k) != (5, 2)]
    found = [(n, k, x + rng.integers(0, 8), rng.random()) for n, k, x in truth]
    return truth, [*found, *((n, 1, 300, rng.random()) for n in range(6))]


def evaluation(images, truth, found):
    return COCOeval(coco(images, truth), coco(images, found), 'bbox')


def test_ap_of_a_resample_is_that_of_copied_images(case):
    value, resampled = resampled_ap(evaluation(range(6), *case), 20)
    for chosen, ap in [(range(6), value), *zip(resamples(6, 20), resampled, strict=True)]:
        copied = [[(new, *row[1:]) for new, n in enumerate(chosen) for row in rows if row[0] == n] for rows in case]
        whole = evaluation(range(6), *copied)
        with contextlib.redirect_stdout(io.StringIO()):
            whole.evaluate()
            whole.accumulate()
            whole.summarize()
        assert ap == pytest.approx(whole.stats[0], abs=1e-12)
    assert 0.2 < value < 0.9
    assert resampled.std() > 0.01


def test_bits_of_correctness():
    correct = np.random.default_rng(0).random(1003) < 0.3
    text = pack(correct)
    assert len(text) == 168  # 126 bytes in base64
    assert np.array_equal(unpack(text, 1003), correct)
    values, factor = image_scores(dict(images=1003, correct=text))
    assert values.mean() == pytest.approx(100 * correct.mean())
    assert factor * values.var() == pytest.approx(100**2 * correct.mean() * (1 - correct.mean()) / 1003)
    values, factor = image_scores(dict(images=3, resampled=[0.5, 0.25]))
    assert (values.tolist(), factor) == ([50, 25], 1)
