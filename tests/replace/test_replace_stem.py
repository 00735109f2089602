"""Stems of ours in models of timm, mmdet and mmpretrain."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange

from tests.helpers.compare import assert_near
from tests.helpers.third_party import MODELS, maps, timm_swin, vit, with_random_norms
from tokennorm import replace_norms, replace_stem
from tokennorm.layers import DualPatchEmbed

WITHOUT = ('t2t', 'edgenext, attention named xca', 'maxvit, block named attn_block')  # convolutions as stems


@pytest.mark.parametrize('name', [name for name in MODELS if name not in WITHOUT])
def test_the_plain_stem_changes_nothing_and_the_dual_one_trains(name):
    build, size, *_ = MODELS[name]
    model = with_random_norms(build())
    x = torch.randn(2, 3, *size)
    expected = maps(model(x))
    replace_stem(model, dict(type='PatchEmbed'))
    for got, want in zip(maps(model(x)), expected, strict=True):
        assert_near(name, got, want)

    model = build()
    stem_name = replace_stem(model, dict(type='DualPatchEmbed'))
    stem = next(module for module in model.get_submodule(stem_name).modules() if isinstance(module, DualPatchEmbed))
    sum(out.square().mean() for out in maps(model(x))).backward()
    assert [name for name, p in stem.named_parameters() if p.grad is None] == []


def test_dual_patch_norm_of_a_vit_keeps_the_projection():
    model = vit()
    conv = model.patch_embed.proj
    assert replace_stem(model, dict(type='DualPatchEmbed')) == 'patch_embed'
    x = torch.randn(2, 3, 32, 48)
    patches = rearrange(x, 'b c (h ph) (w pw) -> b (h w) (ph pw c)', ph=8, pw=8)
    weight = rearrange(conv.weight, 'd c ph pw -> d (ph pw c)')
    tokens = F.linear(F.layer_norm(patches, (192,), eps=1e-6), weight, conv.bias)
    assert_near('tokens', model.patch_embed(x), F.layer_norm(tokens, (16,), eps=1e-6))


def test_the_norm_of_a_swin_stem_becomes_the_second_one():
    model = with_random_norms(timm_swin())
    norm = model.patch_embed.norm
    replace_stem(model, dict(type='DualPatchEmbed'))
    stem = model.patch_embed.proj.stem
    assert type(model.patch_embed.norm) is torch.nn.Identity
    assert torch.equal(stem.norm.weight, norm.weight)
    assert torch.equal(stem.norm.bias, norm.bias)
    assert stem.norm.eps == norm.eps
    assert stem.patch_norm.eps == 1e-6


@pytest.mark.parametrize('stem_first', [True, False])
def test_both_options_in_either_order(stem_first):
    model = vit(dynamic_img_size=True)
    steps = [lambda: replace_stem(model, dict(type='DualPatchEmbed')), lambda: replace_norms(model, dict(type='DTN'))]
    for step in steps if stem_first else steps[::-1]:
        step()
    model(torch.randn(1, 3, 24, 80))
    assert model.blocks[0].norm1.record.find(30, 1, [0]) == (0, (3, 10))


def test_what_has_no_such_patch_embedding_raises():
    for name, kind in zip(WITHOUT, ('T2T_ViT', 'EdgeNeXt', 'MaxxVit'), strict=True):
        with pytest.raises(ValueError, match=f'{kind} has none'):
            replace_stem(MODELS[name][0](), dict(type='DualPatchEmbed'))
    with pytest.raises(ValueError, match=r"name='blocks\.0' must be a patch embedding .* has patch_embed"):
        replace_stem(vit(), dict(type='DualPatchEmbed'), name='blocks.0')


def test_a_projection_with_gaps_raises():
    model = torch.nn.Sequential()
    model.patch_embed = torch.nn.Module()
    model.patch_embed.proj = torch.nn.Conv2d(3, 8, 4, 4, dilation=2)
    with pytest.raises(ValueError, match='square patches'):
        replace_stem(model, dict(type='DualPatchEmbed'))
