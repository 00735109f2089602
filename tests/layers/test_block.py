"""The transformer block: stochastic depth, and Peri-LN's placement of its norms in every backbone."""

from functools import partial

import pytest
import torch
from torch import nn

from tests.helpers.backbones import BACKBONES, blocks, build
from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tokennorm.backbones import Swin
from tokennorm.layers.block import Block, DropPath, Mlp
from tokennorm.norms import DTN, LayerNorm


def layer_norm(x, norm):
    mean = x.mean(-1, keepdim=True)
    return norm.weight * (x - mean) / (((x - mean) ** 2).mean(-1, keepdim=True) + norm.eps).sqrt() + norm.bias


SAMPLES = 100_000


@pytest.mark.parametrize('cls', BACKBONES)
def test_peri_ln_normalizes_before_and_after_each_layer(cls):
    """x + Norm(Module(Norm(x))) in float64 (Kim et al., "Peri-LN", 2025), and gradients for every parameter."""
    model = redraw(build(cls, norm_placement='peri'), 0.3)
    block = blocks(model)[0].double()
    window = ((1, 1), None) if cls is Swin else ()
    x = torch.randn(2, 5, 6, block.mlp.fc2.out_features).double()
    expected = x + layer_norm(block.attn(layer_norm(x, block.norm1), *window), block.post_norm1)
    expected = expected + layer_norm(block.mlp(layer_norm(expected, block.norm2)), block.post_norm2)
    assert_near('tokens', block(x, None, *window), expected, dtype=torch.float64)
    sum(out.square().sum() for out in model.float()(torch.randn(1, 3, 32, 40))).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_norms_after_layers_leave_padding_out():
    block = Block(partial(DTN, 8, 2), nn.Identity(), nn.Identity(), 0.0, 'peri')
    x = torch.randn(1, 6, 7, 8)
    assert_near('tokens', block(x, torch.tensor([[4, 5]]))[:, :4, :5], block(x[:, :4, :5]))


def test_stochastic_depth_drops_the_norms_after_layers_too():
    block = Block(partial(LayerNorm, 8), nn.Identity(), nn.Identity(), 0.5, 'peri')
    for p in block.parameters():
        nn.init.ones_(p)
    out = block(torch.zeros(64, 1, 1, 8))  # a branch that is kept adds 2: its bias of 1 over a rate of 0.5
    assert out.unique().tolist() == [0, 2, 4]


def test_hidden_channels_are_rounded_down_as_in_timm():
    assert [Mlp(dims, ratio).fc1.out_features for dims, ratio in ((10, 2.69), (10, 4), (3, 0.1))] == [26, 40, 1]


def test_it_drops_whole_samples_and_scales_the_others():
    x = torch.ones(SAMPLES, 2, 3)
    kept = DropPath(0.25)(x)
    assert torch.equal(kept, kept[:, :1, :1].expand_as(kept))
    assert set(kept[:, 0, 0].mul(3).round().unique().tolist()) == {0, 4}
    assert abs(kept.mean().item() - 1) < 0.01
    assert torch.equal(DropPath(0.25).eval()(x), x)
    assert torch.equal(DropPath(0.0)(x), x)


def test_the_probability_is_not_rounded_to_the_tokens_precision():
    """bfloat16 has no 0.9: 160 of 100,000 samples more would be dropped at 0.8984."""
    masks = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        out = DropPath(0.1)(torch.ones(SAMPLES, 1, dtype=dtype))
        assert out.dtype == dtype
        masks.append(out > 0)
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])
