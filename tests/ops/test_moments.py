"""Means and variances over grids of tokens, with padding left out, against torch's on the parts that are image."""

import pytest
import torch
from torch.testing import assert_close

from tokennorm.ops.moments import check_grid, image_moments, merge_moments, tokens_inside

VALID = torch.tensor([[5, 3], [2, 7], [0, 4]])  # the last image counts as one row


def images(x):
    return [x[i, : max(h, 1), : max(w, 1)].reshape(-1, x.shape[-1]) for i, (h, w) in enumerate(VALID.tolist())]


def test_moments_of_an_image_leave_out_its_padding():
    x = 3 + torch.randn(3, 5, 7, 2, dtype=torch.float64)
    inside = tokens_inside(x, VALID)
    assert inside.shape == (3, 5, 7, 1)
    assert inside.sum(dim=(1, 2, 3)).tolist() == [15, 14, 4]
    mean, var = image_moments(x, inside)
    for i, tokens in enumerate(images(x)):
        assert_close(mean[i, 0, 0], tokens.mean(0))
        assert_close(var[i, 0, 0], tokens.var(0, correction=0))
    assert tokens_inside(x, None) is None
    for actual, expected in zip(image_moments(x, None), image_moments(x, torch.ones_like(inside)), strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize('lengths', [(4, 4), (1, 9, 2)])
def test_moments_of_parts_are_those_of_the_whole(lengths):
    parts = [5 * i + torch.randn(length, 3, dtype=torch.float64) for i, length in enumerate(lengths)]
    mean = torch.stack([part.mean(0) for part in parts])
    var = torch.stack([part.var(0, correction=0) for part in parts])
    share = None if len(set(lengths)) == 1 else (torch.tensor(lengths, dtype=torch.float64) / sum(lengths))[:, None]
    whole = torch.cat(parts)
    merged = merge_moments(mean, var, 0, share)
    assert_close(merged[0], whole.mean(0, keepdim=True))
    assert_close(merged[1], whole.var(0, correction=0, keepdim=True))


@pytest.mark.parametrize(
    ('x', 'valid', 'message'),
    [
        (torch.zeros(2, 12, 8), None, r'DTN takes \(B, H, W, 8\), got \(2, 12, 8\)'),
        (torch.zeros(2, 3, 4, 6), None, r'DTN takes \(B, H, W, 8\), got \(2, 3, 4, 6\)'),
        (torch.zeros(2, 3, 4, 8), torch.ones(2, 2), r'of shape \(2, 2\) and torch.float32 must be an int32 or int64'),
        (torch.zeros(2, 3, 4, 8), torch.ones(1, 2, dtype=torch.int64), r'of shape \(1, 2\) .* each of the 2 images'),
        (torch.zeros(2, 3, 4, 8), [[3, 4]], r'valid \[\[3, 4\]\] must be'),
    ],
)
def test_other_grids_are_refused(x, valid, message):
    with pytest.raises(ValueError, match=message):
        check_grid('DTN', x, 8, valid)
