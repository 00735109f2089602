"""The adapter: prefix tokens, and norms whose channels come first."""

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.third_party import vit, with_random_norms
from tokennorm import replace_norms
from tokennorm.replace.grid_norm_adapter import GridNormAdapter

LAYER_NORM_START = dict(type='DTN', init='layer_norm')


@pytest.mark.parametrize('kind', ['DTN', 'GN', 'BN', 'RMSNorm', 'ScaleNorm'])
def test_prefix_tokens_use_layer_norm_and_the_grid_the_new_norm(kind):
    model = with_random_norms(vit(reg_tokens=2))
    layer_norm = model.blocks[0].norm1
    cfg = dict(type=kind, num_groups=4) if kind == 'GN' else dict(type=kind)
    replace_norms(model, cfg)
    x = torch.randn(2, 3 + 24, 16)
    model(torch.randn(2, 3, 32, 48))  # leaves its grid of 4 x 6
    out = model.blocks[0].norm1(x)
    keeps_bias = kind not in ('RMSNorm', 'ScaleNorm')
    weight = layer_norm.weight if kind != 'ScaleNorm' else None
    expected = F.layer_norm(x[:, :3], (16,), weight, layer_norm.bias if keeps_bias else None, eps=layer_norm.eps)
    assert torch.equal(out[:, :3], expected)
    grid = x[:, 3:].unflatten(1, (4, 6))
    assert torch.equal(out[:, 3:], model.blocks[0].norm1.norm(grid).flatten(1, 2))


def test_channels_first_layer_norms():
    block = nn.Module()
    block.norm, block.attn = timm.layers.LayerNorm2d(8), nn.MultiheadAttention(8, 2)
    model = nn.Sequential(block)
    x = torch.randn(2, 8, 3, 5)
    expected = block.norm(x)
    assert replace_norms(model, LAYER_NORM_START) == ['0.norm']
    assert (model[0].norm(x) - expected).abs().max() < 1e-2
    assert type(model[0].norm) is GridNormAdapter
