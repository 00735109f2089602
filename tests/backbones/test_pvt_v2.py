"""PVTv2: equal to the published backbone, as timm has it, and what is its own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near
from tests.helpers.pvt_v2 import ARCH, small_pvt_v2, timms_model
from tests.helpers.weights import randomize
from tokennorm.backbones import PVTv2
from tokennorm.checkpoints import from_published_pvt_v2


@pytest.mark.parametrize('linear', [False, True])
def test_equals_timms_with_the_same_weights(linear):
    theirs = timms_model(linear)
    ours, pooled = (
        small_pvt_v2(arch=ARCH | dict(linear=linear), out_type=t).eval() for t in ('featmap', 'avg_featmap')
    )
    for model in (ours, pooled):
        model.load_state_dict(from_published_pvt_v2(theirs.state_dict()), strict=True)
    for size in [(224, 224), (161, 223)]:
        image = torch.randn(2, 3, *size)
        expected = theirs.forward_intermediates(image, intermediates_only=True)
        for stage, actual in enumerate(ours(image)):
            assert_near(f'stage {stage} at {size}', actual, expected[stage])
        vector = theirs.forward_head(theirs.forward_features(image), pre_logits=True)
        assert_near(f'vector at {size}', pooled(image)[0], vector)


def test_maps_smaller_than_the_reduction_give_one_key():
    """20 x 40 pixels: 5 x 10 tokens in the first stage, of which 8 x 8 make a key."""
    model = randomize(small_pvt_v2())
    attn = model.stages[0].blocks[0].attn
    tokens = torch.randn(1, 5, 10, 8)
    assert attn.reduce(tokens).shape == (1, 1, 1, 8)
    padded = F.pad(tokens, (0, 0, 0, 0, 0, 3))
    assert_near('key', attn.reduce(tokens), attn.reduce(padded))
    assert [tuple(out.shape[2:]) for out in model(torch.randn(1, 3, 20, 40))] == [(5, 10), (3, 5), (2, 3), (1, 2)]


def test_initial_convolutions_are_the_published_ones():
    model = PVTv2(dict(ARCH, embed_dims=[32, 64, 80, 128], linear=True))
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.kernel_size[0] ** 2 * module.out_channels / module.groups
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.15), name
            assert (module.bias == 0).all(), name
