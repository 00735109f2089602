"""LayerNorm over the channels of feature maps."""

import pytest
import torch
from mmcv.cnn import ConvModule
from mmengine.registry import init_default_scope
from torch import nn

from tokennorm.layers.layer_norm_2d import LayerNorm2d


def test_values_and_gradients_are_those_of_the_formula():
    torch.manual_seed(0)
    norm = LayerNorm2d(5).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(2, 5, 3, 4, dtype=torch.float64, requires_grad=True)
    mean, var = x.mean(1, keepdim=True), x.var(1, unbiased=False, keepdim=True)
    wanted = (x - mean) / (var + 1e-6).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(x), wanted, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(norm, x)


def test_padding_does_not_enter():
    norm, x = LayerNorm2d(8), torch.randn(1, 8, 4, 6)
    padded = nn.functional.pad(x, (0, 5, 0, 3))
    assert torch.equal(norm(padded)[..., :4, :6], norm(x))


def test_memory_format_is_that_of_the_input():
    norm, x = LayerNorm2d(8), torch.randn(2, 8, 4, 6)
    assert norm(x).is_contiguous()  # mmcv's compiled RoIAlign reads other formats as if they were
    last = norm(x.to(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, norm(x))


@pytest.mark.parametrize('scope', ['mmdet', 'mmpretrain', 'mmengine'])
def test_convolutions_of_any_scope_take_it(scope):
    init_default_scope(scope)
    conv = ConvModule(3, 8, 3, norm_cfg=dict(type='tokennorm.LN2d'))
    assert isinstance(conv.norm, LayerNorm2d)
    assert conv.conv.bias is None
    assert conv(torch.randn(1, 3, 5, 5)).shape == (1, 8, 3, 3)
