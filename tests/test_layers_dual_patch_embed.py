"""Options of Dual PatchNorm: which of the two norms there are, and the eps of the first."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.backbones import PVT, ViT
from tokennorm.layers import DualPatchEmbed


def patches_of(image):
    """Flattened patches in the order (ph, pw, C)."""
    return rearrange(image, 'b c (h ph) (w pw) -> b h w (ph pw c)', ph=4, pw=4).double()


@pytest.mark.parametrize('norms', ['dual', 'pre', 'post'])
def test_each_choice_of_norms_is_its_formula(norms):
    stem = DualPatchEmbed(3, 8, patch_size=4, norms=norms)
    for p in stem.parameters():
        nn.init.normal_(p, std=0.5)
    image = torch.randn(2, 3, 7, 11)
    p = {name: value.double() for name, value in stem.state_dict().items()}
    out = patches_of(F.pad(image, (0, 1, 0, 1)))
    if norms != 'post':
        out = F.layer_norm(out, (48,), p['patch_norm.weight'], p['patch_norm.bias'], 1e-6)
    out = out @ p['proj.weight'].T + p['proj.bias']
    if norms != 'pre':
        out = F.layer_norm(out, (8,), p['norm.weight'], p['norm.bias'], 1e-6)
    assert_near('tokens', stem(image), out)
    assert ('patch_norm.weight' in p, 'norm.weight' in p) == (norms != 'post', norms != 'pre')


def test_eps_of_the_first_norm_decides_the_contrast_that_is_left():
    """A patch of deviation s keeps s / sqrt(s^2 + eps); the norm after the projection keeps its own eps."""
    flat, textured = torch.randn(1, 3, 4, 4) * 0.01, torch.randn(1, 3, 4, 4) * 2
    for eps in (1e-6, 1.0):
        stem = DualPatchEmbed(3, 8, patch_size=4, patch_norm_cfg=dict(type='LN', eps=eps))
        assert (stem.patch_norm.eps, stem.norm.eps) == (eps, 1e-6)
        for image in (flat, textured):
            s = patches_of(image).std(unbiased=False)
            left = stem.patch_norm(patches_of(image).float()).std(unbiased=False)
            assert_near('deviation', left, s / (s**2 + eps) ** 0.5)


def test_statistics_are_added_before_the_second_norm():
    stem = DualPatchEmbed(3, 8, patch_size=4, statistics=True)
    for p in stem.parameters():
        nn.init.normal_(p, std=0.5)
    image = torch.randn(2, 3, 8, 12)
    p = {name: value.double() for name, value in stem.state_dict().items()}
    patches = patches_of(image)
    means = rearrange(patches, 'b h w (p c) -> b h w p c', c=3).mean(3)
    deviation = patches.var(-1, unbiased=False, keepdim=True).sqrt()
    statistics = torch.cat([means, torch.log(deviation + 0.05)], -1)
    out = F.layer_norm(patches, (48,), p['patch_norm.weight'], p['patch_norm.bias'], 1e-6)
    out = out @ p['proj.weight'].T + p['proj.bias'] + statistics @ p['statistics.weight'].T + p['statistics.bias']
    assert_near('tokens', stem(image), F.layer_norm(out, (8,), p['norm.weight'], p['norm.bias'], 1e-6))


def test_vit_normalizes_after_adding_position_embeddings():
    arch = dict(embed_dims=8, depths=1, num_heads=2, mlp_ratios=2)
    kwargs = dict(arch=arch, patch_size=4, pretrain_img_size=8, stem_cfg=dict(type='DualPatchEmbed'))
    kwargs['stem_cfg']['norms'] = 'post_pos_embed'
    model = ViT(**kwargs)
    nn.init.normal_(model.pos_embed)
    model.blocks = nn.ModuleList([BlockStub()])
    image, stem = torch.randn(2, 3, 8, 8), model.patch_embed
    assert isinstance(stem.patch_norm, nn.Identity)
    tokens = stem.proj(patches_of(image).float()) + model.pos_embed.view(1, 2, 2, 8)
    assert_near('tokens', model(image)[0], F.layer_norm(tokens, (8,), eps=1e-6).permute(0, 3, 1, 2))
    with pytest.raises(ValueError, match="PVT: stem_cfg: norms='post_pos_embed'"):
        PVT(stem_cfg=kwargs['stem_cfg'])


class BlockStub(nn.Module):
    """Returns the tokens."""

    def forward(self, x, valid):
        return x
