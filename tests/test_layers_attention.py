"""Eq. 6 of the DTN paper as a bias of attention logits."""

import torch

from tests.helpers.compare import assert_near
from tokennorm.layers.attention import eq6_bias
from tokennorm.ops.dtn_eager import axis_weights


def test_it_is_the_exponent_of_eq_6_for_every_pair_of_tokens():
    height, width = 3, 5
    position = torch.randn(2, 3, dtype=torch.float64)
    bias = eq6_bias(position, height, width)
    assert bias.shape == (2, 15, 15)
    for head, (a1, a2, a3) in enumerate(position.tolist()):
        for query in range(15):
            for key in range(15):
                dy, dx = key // width - query // width, key % width - query % width
                expected = a1 * (dx**2 + dy**2) + a2 * dx + a3 * dy
                assert abs(bias[head, query, key].item() - expected) < 1e-12


def test_its_softmax_is_dtns_weights():
    position = torch.randn(4, 3)
    a1, a2, a3 = position.unbind(dim=-1)
    p = torch.einsum('nij,nkl->nikjl', axis_weights(a1, a3, 4), axis_weights(a1, a2, 6)).reshape(4, 24, 24)
    assert_near('P', eq6_bias(position, 4, 6).softmax(dim=-1), p)
