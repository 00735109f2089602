"""LaPE against the formulas of its authors' code, in float64."""

import pytest
import torch
from torch import nn

from tests.helpers.backbones import VIT_ARCH
from tests.helpers.compare import assert_same_with_gradients
from tests.helpers.weights import redraw
from tokennorm.backbones import LaPEViT, ViT

KWARGS = dict(arch=VIT_ARCH, patch_size=8, pretrain_img_size=32, drop_path_rate=0.0)


def randomized(**kwargs):
    return redraw(LaPEViT(**KWARGS, **kwargs).double(), 0.3)


def layer_norm(x, norm):
    return nn.functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, 1e-6)


def attend(x, attn, heads=3):
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in attn.qkv(x).chunk(3, dim=-1))
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return attn.proj((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize('out_type', ['cls_token', 'featmap'])
def test_positions_are_normalized_and_passed_on_by_each_block(out_type):
    """All blocks attend to the whole grid. `pe_norm` of each block reads that of the block before it."""
    model = randomized(out_type=out_type, global_indices=range(4))
    image = torch.randn(2, 3, 32, 32).double()
    x, positions = model.patch_embed(image).flatten(1, 2), model.pos_embed
    if out_type == 'cls_token':
        x = torch.cat([model.cls_token.expand(2, -1, -1), x], dim=1)
    assert x.shape[1] == positions.shape[1]
    for block in model.blocks:
        positions = layer_norm(positions, block.pe_norm)
        x = x + attend(layer_norm(x, block.norm1) + positions, block.attn)
        x = x + block.mlp(layer_norm(x, block.norm2))
    expected = layer_norm(x, model.norm)[:, 0] if out_type == 'cls_token' else x.mT.unflatten(2, (4, 4))
    (out,) = model(image)
    assert_same_with_gradients(out, expected, dict(model.named_parameters()))


def test_checkpointing_dtn_and_frozen_blocks():
    model = LaPEViT(**KWARGS, token_norm_cfg=dict(type='DTN'), with_cp=True, frozen_stages=1, out_indices=[1]).train()
    model(torch.randn(1, 3, 40, 56))[0].sum().backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert {name for name in trained if 'pe_norm' in name} == {'blocks.1.pe_norm.weight', 'blocks.1.pe_norm.bias'}
    assert model.get_layer_depth('blocks.1.pe_norm.weight') == (2, 6)


def test_deit_s_weights_load_with_new_norms(tmp_path):
    saved = ViT(**KWARGS).state_dict()
    torch.save(saved, tmp_path / 'vit.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'vit.pth'), allow_missing=['*.pe_norm.*'])
    model = LaPEViT(**KWARGS, init_cfg=init_cfg)
    model.init_weights()
    loaded = {name: value for name, value in model.state_dict().items() if 'pe_norm' not in name}
    torch.testing.assert_close(loaded, saved, rtol=0, atol=0)


def test_a_class_token_that_joins_late_is_refused():
    with pytest.raises(ValueError, match="LaPEViT: l_dtn=2 must be 0 for out_type='cls_token'"):
        LaPEViT(**KWARGS, out_type='cls_token', l_dtn=2)
