"""The patch embeddings against torch's convolution and Dual PatchNorm's four lines."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from mmdet.models.layers import PatchEmbed as MMDetPatchEmbed
from torch import nn

from tests.conftest import assert_near
from tokennorm.stems import DualPatchEmbed, PatchEmbed


def randomise(module):
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    return module


@pytest.mark.parametrize('size', [(16, 24), (17, 23), (3, 1)])
def test_patch_embed_equals_mmdets(size):
    ours = randomise(PatchEmbed(3, 8, patch_size=4, norm_cfg=dict(type='LN', eps=1e-6)))
    theirs = MMDetPatchEmbed(3, 8, kernel_size=4, stride=4, norm_cfg=dict(type='LN', eps=1e-6))
    theirs.load_state_dict({k.replace('proj.', 'projection.'): v for k, v in ours.state_dict().items()})
    image = torch.randn(2, 3, *size)
    expected, (height, width) = theirs(image)
    assert (height, width) == (-(-size[0] // 4), -(-size[1] // 4))
    assert_near('tokens', ours(image), expected.unflatten(1, (height, width)))


def test_linear_projection_equals_the_strided_convolution():
    """A convolution's weight (D, C, ph, pw) is the linear one after permuting its patch to (ph, pw, C)."""
    conv = randomise(PatchEmbed(3, 8, patch_size=4))
    dual = DualPatchEmbed(3, 8, patch_size=4)
    dual.patch_norm, dual.norm = nn.Identity(), nn.Identity()
    dual.proj.weight.data = rearrange(conv.proj.weight.data, 'd c ph pw -> d (ph pw c)')
    dual.proj.bias.data = conv.proj.bias.data
    for size in [(16, 24), (17, 23)]:
        image = torch.randn(2, 3, *size)
        assert_near('tokens', dual(image), conv(image))


def test_dual_patch_embed_is_layer_norm_linear_layer_norm():
    stem = randomise(DualPatchEmbed(3, 8, patch_size=4))
    image = torch.randn(2, 3, 8, 12)
    rows = []
    for y in range(2):
        for x in range(3):
            patch = image[:, :, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
            flat = torch.stack([patch[:, c, i, j] for i in range(4) for j in range(4) for c in range(3)], dim=-1)
            rows.append(flat)
    patches = torch.stack(rows, dim=1).double()
    p = {k: v.double() for k, v in stem.state_dict().items()}
    out = F.layer_norm(patches, (48,), p['patch_norm.weight'], p['patch_norm.bias'], eps=1e-6)
    out = F.layer_norm(out @ p['proj.weight'].T + p['proj.bias'], (8,), p['norm.weight'], p['norm.bias'], eps=1e-6)
    assert_near('tokens', stem(image), out.view(2, 2, 3, 8))


def test_every_parameter_of_a_stem_gets_a_gradient():
    for stem in (PatchEmbed(3, 8, 4, norm_cfg=dict(type='LN')), DualPatchEmbed(3, 8, 4)):
        tokens = stem(torch.randn(1, 3, 9, 9))
        (tokens * torch.randn_like(tokens)).sum().backward()
        assert all(p.grad.abs().max() > 0 for p in stem.parameters())


def test_an_unknown_norm_is_named():
    with pytest.raises(ValueError, match=r"norm_cfg: no type 'LayerNrm' .*DTN"):
        PatchEmbed(norm_cfg=dict(type='LayerNrm'))
