"""Planted label errors: as many of each kind as promised, and counted when a list points at them."""

import json
from collections import Counter

import numpy as np
import pytest

from experiments.audit import again
from experiments.audit.plant import count_found, overlaps, plant
from experiments.audit.run import FIRST, both_lists, scored, tables
from tests.helpers.detections import make_truth, perfect


@pytest.mark.parametrize('rate', [0.02, 0.1])
def test_errors_are_what_they_are_called(rate):
    truth = make_truth()
    before = json.dumps(truth)
    planted, errors = plant(truth, rate, seed=1)
    assert json.dumps(truth) == before
    assert (planted, errors) == plant(truth, rate, seed=1)
    assert errors != plant(truth, rate, seed=2)[1]
    counts = Counter(error['kind'] for error in errors)
    assert sum(counts.values()) == round(rate * len(truth['annotations']))
    assert max(counts.values()) - min(counts.values()) <= 1
    old, new = ({one['id']: one for one in some['annotations']} for some in (truth, planted))
    for error in errors:
        at = [one for one in new.values() if one['image_id'] == error['image_id']]
        near = overlaps(error['boxes'], [one['bbox'] for one in at])
        if error['kind'] == 'missing':
            assert near.max() == 0
        elif error['kind'] == 'wrong box':
            assert 0.1 <= overlaps(error['boxes'][:1], error['boxes'][1:]).max() <= 0.4
        elif error['kind'] == 'spurious':
            one = at[int(near[0].argmax())]
            assert one['id'] not in old
        else:
            one = at[int(near[0].argmax())]
            assert one['category_id'] != old[one['id']]['category_id']


def test_lists_find_them():
    """With perfect detections each suspect is right. Suspects of one error count once as found."""
    truth = make_truth()
    planted, errors = plant(truth, 0.1, seed=0)
    detections = perfect(truth)
    detections.table[:, 5] = np.linspace(0.99, 0.6, len(detections))
    lists = both_lists(planted, detections)
    found = count_found(lists['suspects'], errors, 100)
    assert found == dict(listed=18, right=18, found=18, same_kind=18)
    assert count_found(lists['suspects'] * 2, errors, 20)['found'] == 18
    assert count_found([dict(one, image_id=99) for one in lists['suspects']], errors, 100)['found'] == 0
    assert 0 < count_found(lists['before'], errors, 100)['found'] < 18  # neither boxes nor spurious objects


def test_a_list_without_detectors_is_not_measured(tmp_path):
    assert list(scored(tmp_path)) == []
    rows = list(tables([]))
    assert len(rows) == 2 + 4 * 2 * 3 + 2 * 6
    assert all(row.count('not measured') == 2 * len(FIRST) for row in rows[2:])


@pytest.mark.parametrize(
    ('raccoon', 'bccd', 'decided'),
    [
        ([2, 1], [1, 1.5], '`--init`'),
        ([-2, -1], [-1.5, -1], 'anew'),
        ([9, 9], [1, 1], 'undecided'),
        ([9, 9], [-9, -9], 'undecided'),
    ],
)
def test_training_again_is_better_on_both_or_undecided(raccoon, bccd, decided):
    results = [
        dict(data=data, seed=seed, arm=arm, epochs=3, AP=40 + (gain if arm == 'init' else 0), cpu_seconds=60)
        for data, gains in (('raccoon', raccoon), ('bccd', bccd))
        for seed, gain in enumerate(gains)
        for arm in again.ARMS
    ]
    assert again.decision(results, 3) == decided
    assert again.decision(results[:-1], 3) == again.decision(results, 6) == 'not measured'
    assert '| not measured |' in again.table(results)[2]
    assert again.table(results)[-2] == f'3 epochs: {decided}'
