"""Norms are built from configs, with heads, options and names of other packages."""

import pytest
import torch

from tokennorm.layers.building import build_norm
from tokennorm.norms import DTN


def test_build_norm_passes_heads_and_supported_options():
    norm = build_norm(dict(type=DTN, eps=1e-3), 12, 3, pool=2)
    assert (norm.num_heads, norm.eps, norm.pool) == (3, 1e-3, 2)
    assert build_norm(dict(type='DTN', pool=4), 12, 3, pool=2).pool == 4
    assert build_norm(dict(type='LN', eps=1e-3), 12, 3, pool=2).eps == 1e-3
    assert build_norm(dict(type='GN', num_groups=4), 12, 3, pool=2).num_groups == 4


def test_build_norm_takes_norms_of_others_that_keep_the_contract():
    class Theirs(torch.nn.Module):
        is_token_norm = True

        def __init__(self, num_features):
            super().__init__()

        def forward(self, x, valid=None):
            return x

    assert type(build_norm(dict(type=Theirs), 12, 3, pool=2)) is Theirs


@pytest.mark.parametrize(
    ('cfg', 'message'),
    [
        (dict(type='LN', eps=-1), 'norm_cfg: eps=-1 must be a number of at least 0'),
        (dict(type='DTN', eps='a'), "eps='a' must be a number"),
        (dict(type='DTN', grid=12), 'grid=12'),
        (dict(type='DTN', form='code'), "'published'"),
        (dict(type='DTN', init='warm'), "init='warm' must be 'paper', 'layer_norm' or a number between 0 and 1"),
        (dict(type='DTN', init='layer_norm', form='published'), "needs form='paper'"),
        (dict(type='RMSNorm', eps=float('nan')), 'eps=nan must be a number'),
        (dict(type='GN', num_groups=3), r'num_channels \(8\) must be divisible by num_groups \(3\)'),
    ],
)
def test_norms(cfg, message):
    with pytest.raises(ValueError, match=message):
        build_norm(cfg, 8)
