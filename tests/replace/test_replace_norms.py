"""Token normalizers in models of timm, mmdet, mmpretrain and torch: what is replaced, what is kept, and what raises."""

import copy

import pytest
import timm
import torch
from torch import nn

from tests.helpers.norms import seen_by
from tests.helpers.third_party import MODELS, maps, vit, with_random_norms
from tokennorm import replace_norms
from tokennorm.norms import DTN

LAYER_NORM_START = dict(type='DTN', init='layer_norm')


@pytest.mark.parametrize('name', MODELS)
def test_dtn_at_its_layer_norm_start_keeps_what_a_model_gives(name):
    build, size, count, heads = MODELS[name]
    model = with_random_norms(build())
    layer_norms = dict(model.named_modules())
    x = torch.randn(2, 3, *size)
    expected = maps(model(x))
    names = replace_norms(model, LAYER_NORM_START)
    assert len(names) == count
    norms = [model.get_submodule(name).norm for name in names]
    assert all(type(norm) is DTN for norm in norms)
    assert (norms[0].num_heads, norms[-1].num_heads) == heads
    for name, norm in zip(names, norms, strict=True):
        assert norm.eps == layer_norms[name].eps
        assert torch.equal(norm.weight, layer_norms[name].weight)
        assert torch.equal(norm.bias, layer_norms[name].bias)
    out = maps(model(x))
    for got, want in zip(out, expected, strict=True):
        assert (got - want).abs().max() <= 1e-3 * want.abs().max()
    for norm in norms:
        nn.init.zeros_(norm.mean_logit)
        nn.init.zeros_(norm.var_logit)
    assert any(
        (got - want).abs().max() > 1e-2 * want.abs().max() for got, want in zip(maps(model(x)), out, strict=True)
    )
    model.train()
    sum(out.square().mean() for out in maps(model(x))).backward()
    without = [
        f'{name}.{key}' for name in names for key, p in model.get_submodule(name).named_parameters() if p.grad is None
    ]
    assert without == []


def test_a_token_sequence():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 11, 16)
    expected = encoder(x)
    names = replace_norms(encoder, LAYER_NORM_START, grid='sequence')
    assert names == ['layers.0.norm1', 'layers.0.norm2', 'layers.1.norm1', 'layers.1.norm2']
    assert (encoder(x) - expected).abs().max() <= 1e-3 * expected.abs().max()
    encoder.eval()
    with torch.no_grad():  # where torch takes a fused path around the norms of an encoder without hooks
        seen = seen_by(encoder, names[:1], x)
    assert seen['layers.0.norm1'][0].shape == (2, 1, 11, 16)
    with torch.no_grad():
        before = encoder(x)
        nn.init.zeros_(encoder.layers[0].norm1.norm.var_logit)
        assert (encoder(x) - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    'build',
    [
        lambda: vit(global_pool='map', class_token=False),
        lambda: timm.create_model('xcit_nano_12_p16_224', img_size=32, embed_dim=16, depth=2, num_heads=2),
    ],
    ids=['pooling by attention', 'a list of class attentions'],
)
def test_last_norm_stays_with_attention_outside_blocks(build):
    model = build()
    names = replace_norms(model, dict(type='DTN'))
    assert {'blocks.0.norm1', 'blocks.1.norm1'} <= set(names)
    assert isinstance(model.norm, nn.LayerNorm)


def test_normalizers_have_the_mode_and_dtype_of_the_model():
    model = vit().double().eval()
    replace_norms(model, dict(type='BN'))
    bn = model.blocks[0].norm1.norm.bn
    assert model(torch.randn(2, 3, 32, 48).double()).dtype == torch.float64
    assert (bn.training, bn.weight.dtype, bn.num_batches_tracked.item()) == (False, torch.float64, 0)


def test_names_choose_and_leave_out():
    model = vit(depth=3)
    assert replace_norms(model, dict(type='DTN'), exclude='blocks.2.*') == [
        f'blocks.{i}.norm{j}' for i in (0, 1) for j in (1, 2)
    ]
    assert replace_norms(model, dict(type='DTN'), include=['blocks.2.norm1', 'norm'], num_heads={'norm': 2}) == [
        'blocks.2.norm1',
        'norm',
    ]
    assert (model.norm.norm.num_heads, model.blocks[2].norm1.norm.num_heads) == (2, 4)
    model(torch.randn(1, 3, 32, 48))


def test_batch_norms_of_tokens_by_name():
    widths = dict(embed_dim=(16, 24), key_dim=8, depth=(1, 1), num_heads=(2, 3), num_classes=5)
    model = timm.create_model('levit_128s', img_size=128, **widths)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):  # those before shortcuts begin with zeros
            nn.init.normal_(module.weight, 1, 0.3)
    replaced, x = copy.deepcopy(model), torch.randn(3, 3, 128, 128)
    names = replace_norms(replaced, dict(type='BN'), include='stages.*.bn', num_heads=2)
    torch.testing.assert_close(replaced.train()(x), model.train()(x))
    assert seen_by(replaced, names, x)['stages.1.blocks.0.attn.qkv.bn'][0].shape[:3] == (3, 4, 4)


def test_hiera_is_refused_because_it_reorders_tokens():
    model = timm.create_model('hiera_tiny_224', img_size=64, embed_dim=16)
    for include in (None, 'blocks.*.norm1'):
        with pytest.raises(ValueError, match=r'Hiera reorders its tokens .* sam2_hiera_tiny'):
            replace_norms(model, dict(type='DTN'), include=include, num_heads=1)


@pytest.mark.parametrize(
    ('name', 'args'), [('naflexvit_base_patch16_gap', {}), ('vit_tiny_patch16_224', dict(patch_drop_rate=0.5))]
)
def test_models_that_pack_or_drop_patches_are_refused(name, args):
    model = timm.create_model(name, depth=1, embed_dim=32, num_heads=2, **args)
    with pytest.raises(ValueError, match='packs or leaves out patches, so that their grid is lost'):
        replace_norms(model, dict(type='DTN'))


def test_errors_name_what_is_wrong_and_leave_the_model_as_it_was():
    levit = timm.create_model('levit_128s')
    with pytest.raises(ValueError, match=r'LevitDistilled has no LayerNorm .* Its norms are BatchNorm1d'):
        replace_norms(levit, dict(type='DTN'))
    model = vit()
    before = [type(module) for module in model.modules()]
    for arguments, message in (
        (dict(include='stages.*'), r'no LayerNorm with a name that matches stages\.\*'),
        (dict(include='*norm*'), 'num_heads=None must set the heads of norm'),
        (dict(num_heads=3), r'blocks\.0\.norm1: DTN: num_heads=3 must divide num_features=16'),
        (dict(grid=7), r'blocks\.0\.norm1: grid=7 must be \(height, width\)'),
    ):
        with pytest.raises(ValueError, match=message):
            replace_norms(model, dict(type='DTN'), **arguments)
    assert [type(module) for module in model.modules()] == before
    replace_norms(model, dict(type='DTN'))
    with pytest.raises(ValueError, match='has no LayerNorm'):
        replace_norms(model, dict(type='DTN'))
    with pytest.raises(ValueError, match=r'blocks\.0\.norm1: grid=None does not give the grid of 8 tokens'):
        model.blocks[0].norm1(torch.randn(1, 8, 16))
    with pytest.raises(ValueError, match=r'(takes|expected) \(B, T, C\) or \(B, H, W, C\)'):
        model.blocks[0].norm1(torch.randn(8, 16))


@pytest.mark.parametrize('pattern', ['blocks.(0|1).*', 'blocks.1', '*.attn'])
def test_a_pattern_that_leaves_out_nothing_is_named(pattern):
    with pytest.warns(UserWarning, match=r'exclude=.* matches no norm; \* is any text'):
        replace_norms(vit(), dict(type='DTN'), exclude=pattern)


def test_a_norm_with_an_activation_stays():
    block = nn.Sequential()
    block.attn, block.norm = nn.MultiheadAttention(8, 2), timm.layers.LayerNormAct(8, act_layer=nn.ReLU)
    with pytest.raises(ValueError, match='norm is a LayerNormAct with an activation, which would be lost'):
        replace_norms(block, dict(type='DTN'))


def test_norms_without_parameters_follow_the_device_of_the_model():
    block = nn.Module()
    block.norm1, block.attn = nn.LayerNorm(8, elementwise_affine=False), nn.MultiheadAttention(8, 2)
    block.to('meta').requires_grad_(False)
    replace_norms(block, dict(type='DTN'))
    assert {p.device.type for p in block.parameters()} == {'meta'}


def test_frozen_weights_stay_frozen():
    model = vit().requires_grad_(False)
    replace_norms(model, dict(type='DTN'))
    trained = {name.rpartition('.')[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {'mean_logit', 'var_logit', 'position'}
