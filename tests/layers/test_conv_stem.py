"""The convolutional stem: its layers, widths, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from tests.helpers.backbones import BACKBONES, build
from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tokennorm.layers import ConvStem


@pytest.mark.parametrize(('patch_size', 'widths'), [(16, [4, 8, 16, 32]), (4, [16, 32]), (2, [32])])
def test_tokens_are_those_of_the_convolutions(patch_size, widths):
    stem = redraw(ConvStem(3, 32, patch_size, dict(type='LN')).double(), 0.5)
    assert [conv.out_channels for conv in stem.convs if isinstance(conv, nn.Conv2d)] == widths
    image = torch.randn(2, 3, 48, 33).double()
    x = F.pad(image, (0, -(-33 // patch_size) * patch_size - 33, 0, 0))
    for conv, norm in zip(stem.convs[::3], stem.convs[1::3], strict=True):
        x = F.conv2d(x, conv.weight, stride=2, padding=1)
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
        x = (x - mean) / (var + 1e-5).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
        x = x.clamp(min=0)
    x = torch.einsum('bchw,dc->bhwd', x, stem.proj.weight[:, :, 0, 0]) + stem.proj.bias
    assert x.shape[1:3] == (-(-48 // patch_size), -(-33 // patch_size))
    assert_near('tokens', stem(image), F.layer_norm(x, (32,), stem.norm.weight, stem.norm.bias), dtype=x.dtype)


def test_sizes_that_do_not_halve_are_refused():
    for patch_size, dims in ((12, 32), (1, 32), (16, 12)):
        with pytest.raises(ValueError, match=f'ConvStem: patch_size={patch_size} must be a power of 2'):
            ConvStem(3, dims, patch_size)


@pytest.mark.parametrize('cls', BACKBONES)
def test_every_backbone_trains_with_it(cls):
    model = build(cls, stem_cfg=dict(type='ConvStem'))
    assert rearrange(model(torch.randn(2, 3, 75, 101))[-1], 'b c h w -> b h w c').isfinite().all()
    sum(out.square().mean() for out in model(torch.randn(2, 3, 64, 64))).backward()
    stem = next(module for module in model.modules() if isinstance(module, ConvStem))
    assert all(p.grad.abs().sum() > 0 for p in stem.convs.parameters())
