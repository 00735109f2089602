"""Scores per image: AP on resampled images against COCOeval on copied images, intervals against their variance."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from experiments.study.intervals import holm, two_way_interval
from experiments.study.scoring import pack, resampled_ap, resampled_values, resamples, unpack


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
    values = resampled_values(dict(images=1003, correct=text))
    assert values.mean() == pytest.approx(100 * correct.mean(), abs=0.1)
    assert values.std() == pytest.approx(100 * (correct.var() / 1003) ** 0.5, rel=0.05)
    assert resampled_values(dict(images=3, resampled=[0.5, 0.25])).tolist() == [50, 25]


def test_interval_has_the_variance_of_seeds_and_images():
    rng = np.random.default_rng(2)
    seeds, images = 4, 400
    of_seeds, of_images = 0.05 * rng.standard_normal(seeds), rng.standard_normal(images)
    differences = of_seeds[:, None] + of_images
    values = np.stack([differences[:, chosen].mean(1) for chosen in resamples(images, 5000)], 1)
    low, high, _ = two_way_interval(values, np.zeros_like(values))
    expected = (of_seeds.var(ddof=1) / seeds + of_images.var() / images) ** 0.5
    assert (high - low) / 2 == pytest.approx(1.96 * expected, rel=0.03)
    assert (high + low) / 2 == pytest.approx(differences.mean(), abs=0.1 * expected)
    low, high, _ = two_way_interval(values[:1], np.zeros_like(values[:1]))  # of one seed: the images only
    assert (high - low) / 2 == pytest.approx(1.96 * (of_images.var() / images) ** 0.5, rel=0.05)


def test_images_that_both_arms_share_do_not_widen_the_interval():
    values = np.random.default_rng(3).standard_normal((3, 500)).cumsum(1)
    assert two_way_interval(values + 2, values) == pytest.approx((2, 2, 1 / 20_000))
    with pytest.raises(ValueError, match=r'got \(3, 500\) and \(2, 500\)'):
        two_way_interval(values, values[:2])


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
