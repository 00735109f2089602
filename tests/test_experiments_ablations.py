"""The papers' ablations: DTN with fixed parts, norms after a layer, Eq. 6 in the attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from experiments.ablations import AblatedDTN, AblatedViT
from experiments.ablations.vit import PLACEMENTS, eq6_bias
from tests.helpers.compare import assert_near
from tokennorm.norms import DTN, LayerNorm
from tokennorm.ops.dtn_eager import axis_weights

ARCH = dict(embed_dims=8, depths=2, num_heads=2, mlp_ratios=2)


def vit(**kwargs):
    return AblatedViT(**dict(arch=ARCH, patch_size=8, pretrain_img_size=32, drop_path_rate=0.0) | kwargs)


@pytest.mark.parametrize('value', [0, 0.5, 1, (None, 0.25), (1, None)])
def test_a_fixed_lambda_is_exactly_that_and_not_learned(value):
    norm = AblatedDTN(8, 2, fixed_lambda=value)
    pair = value if isinstance(value, tuple) else (value, value)
    for name, fixed in zip(('mean_logit', 'var_logit'), pair, strict=True):
        ratio = getattr(norm, name).sigmoid()
        assert torch.equal(ratio, torch.full((2,), 0.5 if fixed is None else float(fixed)))
        assert (name in dict(norm.named_parameters())) == (name in norm.state_dict()) == (fixed is None)
    learned = DTN(8, 2)
    for name, fixed in zip(('mean_logit', 'var_logit'), pair, strict=True):
        if fixed is not None:
            nn.init.constant_(getattr(learned, name), torch.tensor(float(fixed)).logit().clamp(-30, 30).item())
    x = torch.randn(2, 5, 6, 8)
    assert_near('y', norm(x), learned(x))
    (norm(x) * torch.randn_like(x)).sum().backward()
    assert all(p.grad.isfinite().all() for p in norm.parameters())


def test_table_5_ends_are_layer_norm_and_instance_norm():
    x = torch.randn(2, 5, 6, 8)
    assert_near('(a)', AblatedDTN(8, 2, fixed_lambda=1)(x), F.layer_norm(x, (8,)))
    expected = F.instance_norm(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    assert_near('(b)', AblatedDTN(8, 2, fixed_lambda=0, position_weights='uniform')(x), expected)


@pytest.mark.parametrize(('of_attention', 'of_mlp'), [*zip(PLACEMENTS, PLACEMENTS, strict=True), ('pre', 'post')])
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


def test_placements_use_the_token_norm_with_gradients():
    model = vit(norm_placement='pre+post', token_norm_cfg=dict(type='DTN'), l_dtn=1)
    kinds = [
        type(norm).__name__ for block in model.blocks for norm in block.children() if 'Norm' in type(norm).__name__
    ]
    assert kinds == ['LayerNorm'] * 4
    assert sum(type(module).__name__ == 'DTN' for module in model.modules()) == 4
    sum(out.square().sum() for out in model(torch.randn(1, 3, 32, 40))).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_eq_6_positions_are_in_the_first_l_dtn_blocks():
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


def test_softmax_of_the_bias_is_dtns_weights():
    position = torch.randn(4, 3)
    a1, a2, a3 = position.unbind(dim=-1)
    p = torch.einsum('nij,nkl->nikjl', axis_weights(a1, a3, 4), axis_weights(a1, a2, 6)).reshape(4, 24, 24)
    assert_near('P', eq6_bias(position, 4, 6).softmax(dim=-1), p)
