"""PVT: equal to the published backbone and to mmdet's, and what its arguments do."""

import ast

import pytest
import torch
import torch.nn.functional as F
from mmdet.models.backbones.pvt import PyramidVisionTransformer, pvt_convert
from mmdet.structures import DetDataSample
from mmdet.utils import register_all_modules
from mmengine import DefaultScope
from mmengine.hub import get_config
from mmengine.registry import MODELS
from torch import nn

from tests.helpers.compare import assert_near
from tests.helpers.pvt import ARCH, published_layout, small_pvt
from tests.helpers.weights import randomise
from tokennorm.backbones import PVT
from tokennorm.checkpoints import from_published_pvt
from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.layers import block as layers
from tokennorm.layers.drop_path import DropPath
from tokennorm.norms import DTN, LayerNorm


def test_dtn_variants_have_more_heads_and_the_same_parameters():
    """Eq. 7 of the DTN paper then centres the heads of every stage on different neighbours of a token."""
    with torch.device('meta'):
        plain, dtn = (PVT(arch, token_norm_cfg=dict(type='DTN')) for arch in ('small', 'small-dtn'))
    for model, num_heads in ((plain, [1, 2, 5, 8]), (dtn, [4, 4, 5, 8])):
        assert [stage.blocks[0].attn.num_heads for stage in model.stages] == num_heads
        assert [stage.blocks[0].norm1.num_heads for stage in model.stages[:3]] == num_heads[:3]
    of_norms = ('mean_logit', 'var_logit', 'position')
    shapes = [{n: p.shape for n, p in m.named_parameters() if not n.endswith(of_norms)} for m in (plain, dtn)]
    assert shapes[0] == shapes[1]
    centred = PVT('tiny-dtn', token_norm_cfg=dict(type='DTN')).stages[0].blocks[0].norm1.position
    assert centred.tolist() == [[-1, x, y] for x in (-1, 1) for y in (-1, 1)]


def mmdets_twin(ours):
    """mmdet's PVT with the weights of ours."""
    theirs = PyramidVisionTransformer(
        embed_dims=8,
        num_layers=ARCH['depths'],
        num_heads=ARCH['num_heads'],
        mlp_ratios=ARCH['mlp_ratios'],
        drop_path_rate=0.0,
        norm_cfg=dict(type='LN', eps=1e-6),
    )
    theirs.load_state_dict(pvt_convert(published_layout(ours)), strict=True)
    return theirs.eval()


def test_equals_the_published_backbone(published_case):
    case = published_case('pvt_published_tiny.npz')
    meta = ast.literal_eval(case['meta'])
    assert meta['norm_eps'] == 1e-6
    model = PVT({k: meta[k] for k in ARCH}, pretrain_img_size=meta['pretrain_img_size']).eval()
    params = {key.removeprefix('param.'): value for key, value in case.items() if key.startswith('param.')}
    model.load_state_dict(from_published_pvt(params), strict=True)
    for size in (0, 1):
        maps = model(case[f'x{size}'])
        for stage, actual in enumerate(maps):
            assert_near(f'stage {stage} at size {size}', actual, case[f'y{size}_{stage}'])


@pytest.mark.parametrize('size', [(224, 224), (64, 96)])
def test_equals_mmdets_pvt_with_the_same_weights(size):
    ours = randomise(small_pvt(norm_cfg=dict(type='LN', eps=1e-6)))
    image = torch.randn(2, 3, *size)
    for stage, (actual, expected) in enumerate(zip(ours(image), mmdets_twin(ours)(image), strict=True)):
        assert_near(f'stage {stage}', actual, expected)


def test_keys_are_reduced_by_whole_cells_as_in_mmdets():
    """100 x 68: the first stage's 25 x 17 tokens give 3 x 2 keys, and what is left over none."""
    ours = randomise(small_pvt(norm_cfg=dict(type='LN', eps=1e-6)))
    image = torch.randn(1, 3, 100, 68)
    assert_near('stage 0', ours(image)[0], mmdets_twin(ours)(image)[0])


def test_retinanet_on_ours_and_on_mmdets_gives_the_same_boxes():
    cfg = get_config('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py').model
    cfg.backbone = dict(type='tokennorm.PVT', arch=ARCH, norm_cfg=dict(type='LN', eps=1e-6))
    cfg.neck.in_channels = ARCH['embed_dims']
    cfg.test_cfg.score_thr = 0.0
    register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope('mmdet'):
        detector = MODELS.build(cfg).eval()
        detector.init_weights()
    randomise(detector.backbone)
    nn.init.normal_(detector.bbox_head.retina_cls.weight, std=1)  # scores so far apart that rounding changes no order
    image = torch.randn(1, 3, 128, 160)
    sample = DetDataSample(metainfo=dict(img_shape=(128, 160), ori_shape=(128, 160), scale_factor=(1.0, 1.0)))
    with torch.no_grad():
        ours = detector.predict(image, [sample])[0].pred_instances.clone()
        detector.backbone = mmdets_twin(detector.backbone)
        theirs = detector.predict(image, [sample])[0].pred_instances
    assert len(ours) == len(theirs) == 100
    assert torch.equal(ours.labels, theirs.labels)
    assert_near('boxes', ours.bboxes, theirs.bboxes)
    assert_near('scores', ours.scores, theirs.scores)


def test_published_classifier_gives_its_class_token():
    """Against a transcription of the published forward pass, written on the published names."""
    ours = PVT(ARCH, pretrain_img_size=64, out_type='cls_token', drop_path_rate=0.0)
    randomise(ours)
    state = {k: v for k, v in ours.state_dict().items() if k not in ('norm.weight', 'norm.bias', 'stages.3.cls_token')}
    featmap = small_pvt(pretrain_img_size=64)
    featmap.load_state_dict({**state, 'stages.3.pos_embed': state['stages.3.pos_embed'][:, 1:]})
    published = published_layout(featmap) | {
        'pos_embed4': ours.stages[3].pos_embed,
        'cls_token': ours.stages[3].cls_token,
        'norm.weight': ours.norm.weight,
        'norm.bias': ours.norm.bias,
    }
    assert set(from_published_pvt(published, 'cls_token')) == set(ours.state_dict())
    fresh = PVT(ARCH, pretrain_img_size=64, out_type='cls_token').eval()
    fresh.load_state_dict(from_published_pvt(published, 'cls_token'), strict=True)

    image = torch.randn(2, 3, 64, 64)
    x = featmap.eval()(image)[2]
    p = published
    x = F.conv2d(x, p['patch_embed4.proj.weight'], p['patch_embed4.proj.bias'], stride=2).flatten(2).transpose(1, 2)
    x = F.layer_norm(x, (64,), p['patch_embed4.norm.weight'], p['patch_embed4.norm.bias'], 1e-5)
    x = torch.cat([p['cls_token'].expand(2, -1, -1), x], dim=1) + p['pos_embed4']
    y = F.layer_norm(x, (64,), p['block4.0.norm1.weight'], p['block4.0.norm1.bias'], 1e-6)
    q = F.linear(y, p['block4.0.attn.q.weight'], p['block4.0.attn.q.bias']).view(2, 5, 8, 8).transpose(1, 2)
    kv = (
        F.linear(y, p['block4.0.attn.kv.weight'], p['block4.0.attn.kv.bias']).view(2, 5, 2, 8, 8).permute(2, 0, 3, 1, 4)
    )
    y = ((q @ kv[0].mT * 8**-0.5).softmax(-1) @ kv[1]).transpose(1, 2).reshape(2, 5, 64)
    x = x + F.linear(y, p['block4.0.attn.proj.weight'], p['block4.0.attn.proj.bias'])
    y = F.layer_norm(x, (64,), p['block4.0.norm2.weight'], p['block4.0.norm2.bias'], 1e-6)
    y = F.gelu(F.linear(y, p['block4.0.mlp.fc1.weight'], p['block4.0.mlp.fc1.bias']))
    x = x + F.linear(y, p['block4.0.mlp.fc2.weight'], p['block4.0.mlp.fc2.bias'])
    expected = F.layer_norm(x[:, 0], (64,), p['norm.weight'], p['norm.bias'], 1e-6)
    (cls_token,) = fresh(image)
    assert_near('class token', cls_token, expected)


@pytest.mark.parametrize('out_type', ['featmap', 'cls_token'])
@pytest.mark.parametrize('stem', ['PatchEmbed', 'DualPatchEmbed'])
@pytest.mark.parametrize('norm', ['LN', 'DTN'])
def test_every_parameter_gets_a_gradient_at_an_odd_size(norm, stem, out_type):
    model = small_pvt(token_norm_cfg=dict(type=norm), stem_cfg=dict(type=stem), out_type=out_type)
    outs = model(torch.randn(2, 3, 75, 101))
    shapes = [(2, 64)] if out_type == 'cls_token' else [(2, 8, 19, 26), (2, 16, 10, 13), (2, 40, 5, 7), (2, 64, 3, 4)]
    assert [tuple(out.shape) for out in outs] == shapes
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    # A key bias moves all logits of a query alike; every other parameter has an effect.
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0] == []


def test_token_norms_are_in_the_first_stages_with_paper_pools():
    model = small_pvt(token_norm_cfg=dict(type='DTN', eps=1e-4), stem_cfg=dict(type='DualPatchEmbed'))
    norms = [[type(n) for n in (stage.blocks[0].norm1, stage.blocks[0].norm2)] for stage in model.stages]
    assert norms == [[DTN, DTN]] * 3 + [[LayerNorm, LayerNorm]]
    first = [stage.blocks[0].norm1 for stage in model.stages]
    assert [norm.pool for norm in first[:3]] == [4, 2, 1]
    second = [stage.blocks[0].norm2 for stage in model.stages]
    assert [norm.num_heads for norm in first[:3]] == [norm.num_heads for norm in second[:3]] == [1, 2, 5]
    assert [norm.eps for norm in first] == [1e-4] * 3 + [1e-6]
    assert type(model.stages[0].patch_embed) is DualPatchEmbed
    assert {type(stage.patch_embed) for stage in model.stages[1:]} == {PatchEmbed}
    assert all(type(stage.blocks[0].attn.norm) is LayerNorm for stage in model.stages[:3])
    pools = [
        s.blocks[0].norm1.pool for s in small_pvt(token_norm_cfg=dict(type='DTN', pool=1), token_norm_stages=4).stages
    ]
    assert pools == [1] * 4
    pools = [s.blocks[0].norm2.pool for s in small_pvt(token_norm_cfg=dict(type='DTN', pool=(8, 4, 2, 1))).stages[:3]]
    assert pools == [8, 4, 2]


def test_arch_table_is_the_published_one():
    """Parameters of the published classifiers without their 1000-class heads, in millions (PVT, Table 1: with them)."""
    head = 512 * 1000 + 1000
    for arch, published in [('tiny', 13.2), ('small', 24.5), ('medium', 44.2), ('large', 61.4)]:
        with torch.device('meta'):
            model = PVT(arch, out_type='cls_token')
        total = sum(p.numel() for p in model.parameters()) + head
        assert round(total / 1e6, 1) == published, arch


def test_start_is_the_published_one():
    model = small_pvt(token_norm_cfg=dict(type='DTN'))
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            assert 0.01 < module.weight.std() < 0.03, name
            assert (module.bias == 0).all(), name
    assert model.stages[2].blocks[0].norm1.position[:, 0].tolist() == [-1] * 5
    classifier = PVT(ARCH, out_type='cls_token')
    for parameter in (*(stage.pos_embed for stage in classifier.stages), classifier.stages[3].cls_token):
        assert 0.01 < parameter.std() < 0.03
    eps = {name: m.eps for name, m in classifier.named_modules() if isinstance(m, nn.LayerNorm)}
    assert {e for name, e in eps.items() if 'attn.norm' in name or 'patch_embed' in name} == {1e-5}
    assert {e for name, e in eps.items() if 'norm1' in name or 'norm2' in name or name == 'norm'} == {1e-6}


def test_blocks_are_recomputed_in_training_alone(monkeypatch):
    calls = []
    monkeypatch.setattr(layers, 'checkpoint', lambda block, *x, use_reentrant: calls.append(use_reentrant) or block(*x))
    image = torch.randn(1, 3, 32, 32)
    small_pvt()(image)
    small_pvt(with_cp=True).eval()(image)
    assert calls == []
    small_pvt(with_cp=True)(image)
    assert calls == [False] * 5


def test_position_embeddings_have_the_pretraining_grid():
    shapes = [stage.pos_shape for stage in small_pvt(pretrain_img_size=(240, 322)).stages]
    assert shapes == [(60, 81), (30, 41), (15, 21), (8, 11)]
    tall, wide = small_pvt(pretrain_img_size=(96, 32)), torch.randn(1, 3, 96, 32)
    for stage, x in zip(tall.stages, (24, 12, 6, 3), strict=True):
        assert torch.equal(stage.resized_pos_embed(x, x // 3).flatten(1, 2), stage.pos_embed)
    assert [tuple(out.shape[2:]) for out in tall(wide)] == [(24, 8), (12, 4), (6, 2), (3, 1)]


def test_fewer_stages_need_no_other_argument():
    arch = {key: values[:2] for key, values in ARCH.items()}
    model = PVT(arch, token_norm_cfg=dict(type='DTN'))
    assert [tuple(out.shape) for out in model(torch.randn(1, 3, 64, 64))] == [(1, 8, 16, 16), (1, 16, 8, 8)]
    assert [type(stage.blocks[0].norm1) for stage in model.stages] == [DTN, DTN]


def test_checkpointed_blocks_give_the_same_gradients():
    plain = small_pvt(token_norm_cfg=dict(type='DTN'))
    recomputed = small_pvt(token_norm_cfg=dict(type='DTN'), with_cp=True)
    recomputed.load_state_dict(plain.state_dict())
    image = torch.randn(2, 3, 64, 64)
    for model in (plain, recomputed):
        sum(out.square().mean() for out in model(image)).backward()
    for (name, p), q in zip(plain.named_parameters(), recomputed.parameters(), strict=True):
        assert_near(name, q.grad, p.grad, 'backward')


@pytest.mark.parametrize(
    ('frozen_stages', 'frozen'), [(-1, ()), (0, ('stages.0.patch_embed.',)), (2, ('stages.0.', 'stages.1.'))]
)
def test_frozen_stages_stay_frozen_in_training(frozen_stages, frozen):
    model = small_pvt(frozen_stages=frozen_stages, drop_path_rate=0.2).train()
    for name, p in model.named_parameters():
        assert p.requires_grad is not name.startswith(frozen or ('none',)), name
    assert [stage.training for stage in model.stages] == [i >= frozen_stages for i in range(4)]


def test_stages_behind_the_last_output_are_not_trained():
    model = small_pvt(out_indices=(0, 2))
    assert [tuple(out.shape) for out in model(torch.randn(1, 3, 64, 64))] == [(1, 8, 16, 16), (1, 40, 4, 4)]
    assert {n.split('.')[1] for n, p in model.named_parameters() if not p.requires_grad} == {'3'}


def test_drop_path_grows_with_depth_and_keeps_the_mean():
    model = small_pvt(drop_path_rate=0.4)
    rates = [block.drop_path.rate for stage in model.stages for block in stage.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    block = small_pvt(drop_path_rate=0.999).stages[3].blocks[0].train()
    tokens = torch.randn(1, 2, 2, 64)
    torch.manual_seed(1)  # both branches dropped
    assert torch.equal(block(tokens), tokens)
    drop = DropPath(0.25).train()
    out = drop(torch.ones(20000, 1, 1, 2))
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert out.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(out[..., 0], out[..., 1])
    assert torch.equal(drop.eval()(out), out)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(arch='tny'), 'tiny, small, medium, large'),
        (dict(arch=dict(depths=[2])), 'embed_dims'),
        (dict(arch=dict(ARCH, depths=[2, 2])), 'one entry per stage'),
        (dict(arch=dict(ARCH, num_heads=[1, 3, 5, 8])), 'num_heads=3 must divide embed_dims=16'),
        (dict(out_indices=(0, 4)), 'out_indices'),
        (dict(token_norm_stages=5), 'token_norm_stages'),
        (dict(frozen_stages=5), 'frozen_stages'),
        (dict(out_type='tokens'), 'out_type'),
        (dict(out_type='cls_token', token_norm_cfg=dict(type='DTN'), token_norm_stages=4), 'class token'),
        (dict(token_norm_cfg=dict(type='DTM')), "token_norm_cfg: no type 'DTM'"),
        (dict(token_norm_cfg=dict(type='DTN', pool=(4, 2))), 'pool='),
        (dict(stem_cfg=dict(type='DualPatch')), "stem_cfg: no type 'DualPatch'"),
        (dict(norm_cfg=dict(eps=1e-6)), 'norm_cfg'),
        (dict(norm_cfg=dict(type='BN2d')), 'BatchNorm2d does not normalize token grids'),
        (dict(arch=dict(ARCH, sr_ratios=[8, 4, 2, 0])), 'sr_ratios'),
        (dict(arch=dict(ARCH, mlp_ratios=[4, 4, 2, -2.5])), 'mlp_ratios'),
        (dict(out_indices=()), 'out_indices'),
        (dict(drop_path_rate=1.0), 'drop_path_rate'),
        (dict(pretrain_img_size=(64, 64, 64)), 'pretrain_img_size'),
    ],
)
def test_arguments_that_do_not_fit_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        small_pvt(**kwargs)
