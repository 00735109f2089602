"""Packed run lengths are read as pycocotools wrote them, and damaged ones are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_masks

from tokennorm.datasets.coco.rle import rle_problem, run_lengths


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]))
def test_packed_run_lengths_are_those_of_the_mask(height, width, seed, share):
    mask = np.asfortranarray(np.random.default_rng(seed).random((height, width)) < share, dtype=np.uint8)
    packed = coco_masks.encode(mask)['counts'].decode()
    runs = run_lengths(packed)
    unpacked = np.concatenate([np.full(count, i % 2) for i, count in enumerate(runs)])
    np.testing.assert_array_equal(unpacked, mask.flatten('F'))
    for counts in (packed, runs):
        assert rle_problem(dict(size=[height, width], counts=counts), [height, width]) == ''


def test_large_counts():
    for size in ([1, 2**31], [3000, 4000]):
        height, width = size
        counts = [height * width - 7, 7]
        packed = coco_masks.frPyObjects(dict(size=size, counts=counts), height, width)['counts'].decode()
        assert run_lengths(packed) == counts


@pytest.mark.parametrize(
    ('counts', 'message'),
    [
        ([5, -1], 'not integers'),
        ([5, 1.5], 'not integers'),
        ([2**32], 'not integers'),
        ([True], 'not integers'),
        ('/', 'not packed run lengths'),
        ('p', 'not packed run lengths'),
        ('P' * 8 + '0', 'not packed run lengths'),
        ('5P', 'are cut off'),
        ('O', 'below 0'),
        ('11O', 'below 0'),
    ],
)
def test_damaged_counts(counts, message):
    with pytest.raises(ValueError, match=message):
        run_lengths(counts)


def test_what_does_not_fit_is_said():
    assert rle_problem(dict(size=[2, 3], counts=[6]), [3, 2]) == 'size=[2, 3], the image is [3, 2]'
    assert rle_problem(dict(size=[2, 3], counts=[5]), [2, 3]) == 'counts of 5 pixels in all, the image has 6'
