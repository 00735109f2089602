"""mmengine's counter counts attention and DTN."""

import pytest
from mmengine.analysis import get_model_complexity_info
from torch import nn

from tokennorm.backbones.pvt import SpatialReductionAttention
from tokennorm.flops import count_attention_and_norms
from tokennorm.norms import DTN, LayerNorm


def flops(model, shape):
    count_attention_and_norms()
    return get_model_complexity_info(model, shape, show_table=False, show_arch=False)['flops']


def test_attention():
    tokens, dims = 6 * 8, 16
    attention = SpatialReductionAttention(dims, num_heads=2, sr_ratio=1, norm_cfg=dict(type='LN'))
    projections = 4 * tokens * dims * dims
    assert flops(attention, (6, 8, dims)) == projections + 2 * tokens * tokens * dims


def test_dtn():
    height, width, dims = 6, 8, 16
    norm = DTN(dims, num_heads=2)
    sums = 2 * height * width * (height + width) * dims  # P x and P (x * x), along either axis
    expected = sums + 5 * height * width * dims
    assert flops(norm, (height, width, dims)) == pytest.approx(expected, rel=1e-3)  # mmengine rounds einsum's


def test_layer_norm_counts_as_in_torch():
    assert flops(LayerNorm(16), (6, 8, 16)) == flops(nn.LayerNorm(16), (6, 8, 16)) == 5 * 6 * 8 * 16
