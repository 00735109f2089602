"""Intervals of a study against scipy, a second implementation from covariances, and simulated nulls."""

import base64
import json

import numpy as np
import pytest
from scipy.stats import t as student_t
from scipy.stats import ttest_ind

from experiments.study.intervals import ImageError, difference_of, holm, image_error, mean_image_error
from experiments.study.page import Pages
from experiments.study.plan import load_study
from experiments.study.run import HERE, RESULTS, TABLES
from tests.helpers.cases import fast_first

NO_IMAGE_ERROR = ImageError(0.0, (0.0, 0.0), 10_000)


def second_interval(values, baseline, covariances, factor, images):
    """The same interval from the covariances (runs, runs) of the scores of all runs, those of the first arm first."""
    a = len(values)
    cov = factor * covariances
    own, other, cross = cov[:a, :a], cov[a:, a:], cov[:a, a:]

    def off(matrix):  # mean covariance of two runs of an arm: what is common to the arm's runs
        return (matrix.sum() - np.trace(matrix)) / (len(matrix) * (len(matrix) - 1))

    arms = max(0.0, off(own) + off(other) - 2 * cross.mean())
    terms = [
        (max(np.var(runs, ddof=1), np.trace(matrix) / len(runs) - off(matrix)) / len(runs), len(runs) - 1)
        for runs, matrix in ((values, own), (baseline, other))
    ]
    terms.append((arms, images - 1))
    total = sum(term for term, _ in terms)
    freedom = total**2 / sum(term**2 / own for term, own in terms)
    half = student_t.isf(0.025, freedom) * total**0.5
    middle = np.mean(values) - np.mean(baseline)
    return middle - half, middle + half


def test_without_image_error_it_is_welchs_test():
    values, baseline = [3.0, 5.0, 7.5], [2.0, 2.2, 5.0, 1.0]
    expected = ttest_ind(values, baseline, equal_var=False)
    difference = difference_of(values, baseline, NO_IMAGE_ERROR)
    assert difference.mean == pytest.approx(5.1666667 - 2.55)
    assert difference.p == pytest.approx(expected.pvalue)
    for level in (0.9, 0.95):
        ends = expected.confidence_interval(level)
        assert difference.interval(level) == pytest.approx((ends.low, ends.high))
    assert difference.is_shown == (expected.pvalue < 0.05)


def test_pooled_deviations_are_students_test():
    values, baseline = [3.0, 5.0, 7.5], [2.0, 2.2, 5.0, 1.0]
    expected = ttest_ind(values, baseline, equal_var=True)
    pooled = difference_of(values, baseline, NO_IMAGE_ERROR, [values, baseline, [4.0]])  # one run has no deviation
    assert pooled.p == pytest.approx(expected.pvalue)
    ends = expected.confidence_interval(0.95)
    assert pooled.interval() == pytest.approx((ends.low, ends.high))
    # By hand: 2 x 0.5 and 8, in 3 + 1 degrees of freedom, is 2.25 per run; 1 from the images of the arms
    error = ImageError(1.0, (0.1, 3.25), 10**9)
    third = difference_of([1.0, 2.0], [5.0, 6.0], error, [[1.0, 2.0], [5.0, 6.0], [0.0, 4.0, 2.0]])
    assert third.error**2 == pytest.approx(2.25 / 2 + 3.25 / 2 + 1)
    assert third.freedom == pytest.approx(third.error**4 / ((2.75**2) / 4))


def test_parts_of_the_error_by_hand():
    # 1 / 2 and 0.25 / 2 from the runs, the second raised to 0.5 / 2; 0.25 from the images of the arms
    difference = difference_of([10.0, 10 + 2**0.5], [8.0, 8 + 0.5**0.5], ImageError(0.25, (0.3, 0.5), 101))
    assert difference.error == pytest.approx((0.5 + 0.25 + 0.25) ** 0.5)
    assert difference.freedom == pytest.approx(1 / (0.25 + 0.0625 + 0.0625 / 100))
    assert difference.images_error == pytest.approx((0.25 + 0.15 + 0.25) ** 0.5)


def test_one_run_or_unknown_images_give_no_interval():
    for difference in (difference_of([3.0], [1.0, 2.0], NO_IMAGE_ERROR), difference_of([3.0, 4.0], [1.0, 2.0], None)):
        assert difference.interval() is None
        assert difference.p is None
        assert not difference.is_shown
    assert difference_of([3.0], [1.0, 2.0], None).mean == 1.5
    same = difference_of([0.0, 0.0], [0.0, 0.0], NO_IMAGE_ERROR)  # detectors that found nothing
    assert (same.mean, same.interval()) == (0.0, None)


def test_image_error_finds_the_variances_of_simulated_scores():
    rng = np.random.default_rng(0)
    arms, run, images = 0.7, (1.5, 0.8), 400
    found = []
    for _ in range(200):
        common = rng.standard_normal(images)  # hard and easy images
        scores = [
            5 * common + arms * rng.standard_normal(images) + one * rng.standard_normal((3, images)) for one in run
        ]
        scores[0] += rng.standard_normal((3, 1))  # runs differ
        found.append(image_error(*scores, 1 / images, images))
    assert np.mean([error.arms for error in found]) == pytest.approx(2 * arms**2 / images, rel=0.05)
    for arm in (0, 1):
        assert np.mean([error.run[arm] for error in found]) == pytest.approx(run[arm] ** 2 / images, rel=0.02)
    borrowed = mean_image_error(found).borrowed(100)
    assert borrowed.is_borrowed
    assert borrowed.arms == pytest.approx(2 * arms**2 / 100, rel=0.05)
    assert borrowed.run[0] == borrowed.run[1] == pytest.approx((1.5**2 + 0.8**2) / 2 / 100, rel=0.02)


# Deviations of the runs, of run x image, and of the arms by the images, and number of runs: as measured
NULLS = {
    'PVT-mini, 200 classes': ((0.33, 0.35), 0.23, 0.09, (3, 3), 10_000),
    'Swin-mini, 200 classes': ((0.97, 0.35), 0.23, 0.22, (3, 3), 10_000),
    'ViT, 40 classes': ((0.26, 0.23), 0.52, 0.30, (3, 3), 2_000),
    'Blood cells': ((1.37, 1.07), 0.55, 0.10, (3, 3), 72),
    'Nuclei': ((0.10, 0.06), 0.16, 0.15, (3, 3), 133),
    'Stems': ((0.35, 0.25), 0.55, 0.40, (2, 2), 2_000),
    'unequal runs': ((0.50, 0.50), 0.23, 0.15, (3, 2), 10_000),
}


def excluding_zero(deviations, run, arms, runs, images, draws, others=0):
    """Part of the intervals that exclude zero where both arms are equal, `others` pooled ones, too."""
    rng = np.random.default_rng(0)
    error = ImageError(arms**2, (run**2, run**2), images)
    shown = 0
    for _ in range(draws):
        own, other = (
            max(deviation, run) * rng.standard_normal(number)
            for deviation, number in zip(deviations, runs, strict=True)
        )
        more = deviations[0] * rng.standard_normal((others, runs[0]))
        pooled = [own, other, *more] if others else ()
        shown += difference_of(list(own + arms * rng.standard_normal()), list(other), error, pooled).is_shown
    return shown / draws


@pytest.mark.parametrize('name', fast_first(NULLS, 'unequal runs'))
def test_intervals_exclude_zero_in_at_most_7_percent_of_nulls(name):
    assert 0.005 < excluding_zero(*NULLS[name], draws=2000) < 0.075


@pytest.mark.slow
def test_pooled_intervals_of_two_runs_exclude_zero_in_about_5_percent_of_nulls():
    assert 0.03 < excluding_zero((0.35, 0.35), 0.23, 0.09, (2, 2), 10_000, draws=2000, others=3) < 0.07


@pytest.mark.parametrize(
    ('name', 'arm', 'other'),
    [
        ('pvt_mini', 'DTN', 'LN'),
        ('pvt_mini', 'DTN 20x', 'local'),
        ('swin', 'DTN', 'LN'),
        ('bccd_own', 'DTN', 'LN'),
        ('nuclei_own', 'local', 'DTN'),
        ('raccoon_own', 'local', 'LN'),
    ],
)
def test_published_intervals_agree_with_a_second_implementation(name, arm, other):
    rows = json.loads((RESULTS / 'evidence' / f'{name}.json').read_text())
    of_arm = {one: [row for row in rows if row['arm'] == one] for one in (arm, other)}
    scores, images = [], rows[0]['scores']['images']
    for row in (*of_arm[arm], *of_arm[other]):
        if 'correct' in row['scores']:
            bits = ''.join(f'{byte:08b}' for byte in base64.b64decode(row['scores']['correct']))[:images]
            scores.append([100 * int(bit) for bit in bits])
        else:
            scores.append([100 * ap for ap in row['scores']['resampled']])
    factor = 1 / images if 'correct' in rows[0]['scores'] else 1
    metric = next(iter(list(rows[0]['curve'].values())[-1]))
    scale = 100 if metric.startswith('coco') else 1
    values = [scale * row['scores']['value'] for row in (*of_arm[arm], *of_arm[other])]
    runs = len(of_arm[arm])
    expected = second_interval(values[:runs], values[runs:], np.cov(scores), factor, images)
    pages = Pages({'evidence': load_study(HERE / 'configs' / 'evidence.py')}, RESULTS)
    found = pages.difference(f'evidence/{name}', arm, other)
    assert found.interval() == pytest.approx(expected, rel=1e-9)
    page = (TABLES / 'pretrain_and_detect.md').read_text()
    assert f'{expected[0]:+.2f} to {expected[1]:+.2f}' in page or (arm, other) == ('local', 'DTN')


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
