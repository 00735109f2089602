"""The transformer block, and the placements of its norms."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.backbones import ViT
from tokennorm.layers.block import Block
from tokennorm.norms import LayerNorm

PLACEMENTS = ('pre', 'post', 'pre+post')
ARCH = dict(embed_dims=8, depths=2, num_heads=2, mlp_ratios=2)


def vit(**kwargs):
    return ViT(**dict(arch=ARCH, patch_size=8, pretrain_img_size=32, drop_path_rate=0.0) | kwargs)


@pytest.mark.parametrize('of_attention', PLACEMENTS)
@pytest.mark.parametrize('of_mlp', PLACEMENTS)
def test_each_placement_is_its_formula(of_attention, of_mlp):
    block = vit(norm_placement=(of_attention, of_mlp)).blocks[0]
    for p in block.parameters():
        nn.init.normal_(p, std=0.5)
    x = torch.randn(2, 3, 4, 8)

    def normalize(x, norm):
        return F.layer_norm(x, (8,), norm.weight, norm.bias, norm.eps)

    expected = x
    for placement, layer, pre, post in (
        (of_attention, block.attn, block.norm1, block.post_norm1),
        (of_mlp, block.mlp, block.norm2, block.post_norm2),
    ):
        y = normalize(expected, pre) if placement != 'post' else expected
        y = normalize(layer(y), post) if placement != 'pre' else layer(y)
        expected = expected + y
        assert (type(pre) is LayerNorm, type(post) is LayerNorm) == (placement != 'post', placement != 'pre')
    assert_near('tokens', block(x), expected)


def test_a_block_without_further_norms_has_the_parameters_of_the_published_ones():
    names = {name.split('.')[0] for name, _ in vit().blocks[0].named_parameters()}
    assert names == {'norm1', 'attn', 'norm2', 'mlp'}
    block = Block(LayerNorm(8), nn.Identity(), LayerNorm(8), nn.Identity(), drop_path=0.0)
    assert len(block.state_dict()) == 4


def test_every_norm_of_every_placement_is_the_token_norm_and_gets_a_gradient():
    model = vit(norm_placement='pre+post', token_norm_cfg=dict(type='DTN'), l_dtn=1)
    kinds = [
        type(norm).__name__ for block in model.blocks for norm in block.children() if 'Norm' in type(norm).__name__
    ]
    assert kinds == ['LayerNorm'] * 4
    assert sum(type(module).__name__ == 'DTN' for module in model.modules()) == 4
    sum(out.square().sum() for out in model(torch.randn(1, 3, 32, 40))).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize('wrong', ['sandwich', ('pre',), ('pre', 'both'), 3, None])
def test_other_placements_are_named(wrong):
    with pytest.raises(ValueError, match=r'ViT: norm_placement=.* must be one of pre, post, pre\+post'):
        vit(norm_placement=wrong)


def test_positions_of_eq_6_are_in_the_attention_of_the_first_l_dtn_blocks():
    model = vit(rel_pos='eq6', l_dtn=1, out_type='cls_token')
    positions = {name: p for name, p in model.named_parameters() if name.endswith('attn.position')}
    assert list(positions) == ['blocks.0.attn.position']
    assert positions['blocks.0.attn.position'].tolist() == [[-1, 0, 0]] * 2
    assert vit(rel_pos='eq6', l_dtn=1, arch=ARCH | dict(num_heads=4)).blocks[0].attn.position.tolist() == [
        [-1, x, y] for x in (-1, 1) for y in (-1, 1)
    ]
    with pytest.raises(ValueError, match="rel_pos='eq6' needs l_dtn above 0"):
        vit(rel_pos='eq6')


@pytest.mark.parametrize('global_indices', [(0, 1), ()])
def test_attention_with_eq_6_adds_its_exponent_to_the_logits(global_indices):
    """On the whole grid, or in a window as large as the grid."""
    attn = vit(rel_pos='eq6', l_dtn=2, window_size=4, global_indices=global_indices).blocks[0].attn
    nn.init.normal_(attn.position, std=0.3)
    x = torch.randn(1, 4, 4, 8)
    q, k, v = attn.qkv(x).reshape(16, 3, 2, 4).permute(1, 2, 0, 3)
    at = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    dy, dx = (at[None] - at[:, None]).unbind(-1)
    a1, a2, a3 = attn.position[:, :, None, None].unbind(1)
    logits = q @ k.mT / 2 + a1 * (dx**2 + dy**2) + a2 * dx + a3 * dy
    expected = attn.proj((logits.softmax(-1) @ v).permute(1, 0, 2).reshape(1, 4, 4, 8))
    assert_near('tokens', attn(x), expected)
