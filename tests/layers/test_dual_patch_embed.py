"""Options of Dual PatchNorm: which of the two norms there are, and the eps of the first."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tokennorm.backbones import PVT, ViT
from tokennorm.layers import DualPatchEmbed


def patches_of(image):
    """Flattened patches in the order (ph, pw, C)."""
    return rearrange(image, 'b c (h ph) (w pw) -> b h w (ph pw c)', ph=4, pw=4).double()


@pytest.mark.parametrize(('norms', 'eps'), [('dual', 1e-6), ('dual', 1.0), ('pre', 1e-6), ('post', None)])
@pytest.mark.parametrize('statistics', [False, True])
def test_each_choice_of_norms_is_its_formula(norms, eps, statistics):
    patch_norm_cfg = dict(type='LN', eps=eps) if eps == 1 else None
    stem = DualPatchEmbed(3, 8, patch_size=4, norms=norms, patch_norm_cfg=patch_norm_cfg, statistics=statistics)
    redraw(stem, 0.5)
    image = torch.randn(2, 3, 7, 11)
    p = {name: value.double() for name, value in stem.state_dict().items()}
    out = patches = patches_of(F.pad(image, (0, 1, 0, 1)))
    if norms != 'post':
        out = F.layer_norm(out, (48,), p['patch_norm.weight'], p['patch_norm.bias'], eps)
    out = out @ p['proj.weight'].T + p['proj.bias']
    if statistics:
        means = rearrange(patches, 'b h w (p c) -> b h w p c', c=3).mean(3)
        of_patch = torch.cat([means, torch.log(patches.var(-1, unbiased=False, keepdim=True).sqrt() + 0.05)], -1)
        out = out + of_patch @ p['statistics.weight'].T + p['statistics.bias']
    if norms != 'pre':
        out = F.layer_norm(out, (8,), p['norm.weight'], p['norm.bias'], 1e-6)
    assert_near('tokens', stem(image), out)
    assert ('patch_norm.weight' in p, 'norm.weight' in p) == (norms != 'post', norms != 'pre')


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
