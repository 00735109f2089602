"""What all pyramid backbones have in common: freezing, recomputing, what they say of their maps, wrong arguments."""

import pytest
import torch
from mmengine.registry import MODELS
from torch import nn

from tests.helpers.backbones import BACKBONES, build
from tests.helpers.compare import assert_near
from tokennorm.backbones import PVT, Swin
from tokennorm.layers import block as layers
from tokennorm.norms import DTN, BatchNorm, LayerNorm

of_every_backbone = pytest.mark.parametrize('cls', BACKBONES)


@of_every_backbone
def test_the_registry_knows_it_and_says_what_necks_ask(cls):
    model = MODELS.build(dict(type=f'tokennorm.{cls.__name__}', out_indices=(2, 1), **BACKBONES[cls]))
    assert type(model) is cls
    maps = model(torch.randn(1, 3, 50, 70))
    assert [tuple(m.shape) for m in maps] == [(1, 16, 7, 9), (1, 24, 4, 5)]
    info = [
        (info['num_chs'], info['reduction'], info['module']) for info in build(cls, out_indices=(1, 2)).feature_info
    ]
    assert info == [(16, 8, 'stages.1'), (24, 16, 'stages.2')]
    assert [info['reduction'] for info in build(cls).feature_info] == [4, 8, 16]
    vector = build(cls, out_type='cls_token' if cls is PVT else 'avg_featmap', token_norm_stages=2)
    assert [out.shape for out in vector(torch.randn(2, 3, 50, 70))] == [(2, 24)]
    assert vector.feature_info == [dict(num_chs=24, reduction=16, module='stages.2')]


@of_every_backbone
@pytest.mark.parametrize('norm', ['LN', 'DTN'])
def test_activation_checkpointing_keeps_gradients(cls, norm, monkeypatch):
    plain, recomputed = (build(cls, token_norm_cfg=dict(type=norm), with_cp=with_cp) for with_cp in (False, True))
    recomputed.load_state_dict(plain.state_dict())
    image = torch.randn(2, 3, 52, 36)
    for model in (plain, recomputed):
        sum(out.square().mean() for out in model(image)).backward()
    for (name, p), q in zip(plain.named_parameters(), recomputed.parameters(), strict=True):
        assert_near(name, q.grad, p.grad, 'backward')
    calls = []
    monkeypatch.setattr(layers, 'checkpoint', lambda block, *x, use_reentrant: calls.append(use_reentrant) or block(*x))
    plain(image)
    recomputed.eval()(image)
    assert calls == []
    recomputed.train()(image)
    assert calls == [False] * 5


@of_every_backbone
@pytest.mark.parametrize(
    ('frozen_stages', 'frozen'),
    [(-1, ('none',)), (0, ('stages.0.patch_embed.',)), (2, ('stages.0.', 'stages.1.')), (3, ('stages.',))],
)
def test_frozen_stages_stay_frozen_in_training(cls, frozen_stages, frozen):
    model = build(cls, frozen_stages=frozen_stages, drop_path_rate=0.2).train()
    for name, p in model.named_parameters():
        assert p.requires_grad is not name.startswith(frozen), name
    assert [stage.training for stage in model.stages] == [i >= frozen_stages for i in range(3)]
    assert model.stages[0].patch_embed.training is (frozen_stages < 0)


@of_every_backbone
@pytest.mark.parametrize('out_indices', [(0,), (1,), (2,), (0, 1), (2, 0), (0, 1, 2)])
def test_what_no_output_needs_is_not_trained(cls, out_indices):
    """Distributed training then needs no `find_unused_parameters`."""
    model = build(cls, out_indices=out_indices)
    sum(out.square().sum() for out in model(torch.randn(1, 3, 32, 32))).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {name for name, p in model.named_parameters() if not p.requires_grad}
    behind = {name for name in without if int(name.split('.')[1]) > max(out_indices)}
    skipped = [i for i in range(max(out_indices)) if i not in out_indices]
    norms = {f'stages.{i}.norm.{kind}' for i in skipped for kind in ('weight', 'bias')}
    assert without - behind == (norms if cls is Swin else set())


@of_every_backbone
def test_batch_norms_stay_in_eval_mode_on_request(cls):
    for norm_eval in (True, False):
        model = build(cls, norm_eval=norm_eval)
        model.stages[2].extra = nn.BatchNorm2d(4)
        assert model.train().stages[2].extra.training is not norm_eval


@of_every_backbone
def test_token_norms_have_their_stages_heads_and_pools(cls):
    model = build(cls, token_norm_cfg=dict(type='DTN', eps=1e-4), stem_cfg=dict(type='DualPatchEmbed'))
    norms = [norm for stage in model.stages for block in stage.blocks for norm in (block.norm1, block.norm2)]
    assert {type(norm) for norm in norms} == {DTN}
    stages = [0] * 4 + [1] * 4 + [2] * 2
    assert [(n.pool, n.num_heads, n.eps) for n in norms] == [((4, 2, 1)[s], (1, 2, 4)[s], 1e-4) for s in stages]
    assert sum(type(module) is DTN for module in model.modules()) == len(norms)
    model = build(cls, token_norm_cfg=dict(type='DTN', pool=(3, 2, 2)), token_norm_stages=1)
    assert [(type(s.blocks[-1].norm2), getattr(s.blocks[0].norm1, 'pool', None)) for s in model.stages] == [
        (DTN, 3),
        (LayerNorm, None),
        (LayerNorm, None),
    ]


@of_every_backbone
def test_dual_patch_norm_ignores_norm_cfg(cls):
    """LayerNorm with eps 1e-6 unless `stem_cfg` sets it; the second norm is that of the backbone's plain stem."""
    for norm_cfg, second in ((None, (LayerNorm, 1e-5)), (dict(type='BN', eps=1e-3), (BatchNorm, None))):
        stem = build(cls, norm_cfg=norm_cfg, stem_cfg=dict(type='DualPatchEmbed')).stages[0].patch_embed
        assert (type(stem.patch_norm), stem.patch_norm.eps) == (LayerNorm, 1e-6)
        assert (type(stem.norm), getattr(stem.norm, 'eps', None)) == second
    stem_cfg = dict(type='DualPatchEmbed', patch_norm_cfg=dict(type='LN', eps=1.0))
    assert build(cls, stem_cfg=stem_cfg).stages[0].patch_embed.patch_norm.eps == 1.0


@of_every_backbone
def test_an_mlp_may_be_a_fractional_number_of_times_as_wide(cls):
    arch = BACKBONES[cls]['arch'] | dict(mlp_ratios=[2.0, 3.5, 1.3])
    model = build(cls, arch=arch)
    assert [stage.blocks[0].mlp.fc1.out_features for stage in model.stages] == [16, 56, 31]
    assert [tuple(out.shape) for out in model(torch.randn(1, 3, 32, 32))] == [
        (1, 8, 8, 8),
        (1, 16, 4, 4),
        (1, 24, 2, 2),
    ]


@of_every_backbone
def test_drop_path_grows_with_depth(cls):
    model = build(cls, drop_path_rate=0.4)
    rates = [block.drop_path.rate for stage in model.stages for block in stage.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


@of_every_backbone
@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(arch='tny'), "arch='tny' must be one of .* or a dict"),
        (dict(arch=dict(depths=[2])), 'embed_dims'),
        (dict(depths=[2, 2]), 'one entry per stage'),
        (dict(num_heads=[1, 3, 4]), 'num_heads=3 must divide embed_dims=16'),
        (dict(mlp_ratios=[4, 4, -2.5]), 'mlp_ratios'),
        (dict(out_indices=(0, 3)), r'out_indices=\(0, 3\) must be in 0 to 2'),
        (dict(out_indices=()), 'at least one stage'),
        (dict(token_norm_stages=4), 'token_norm_stages'),
        (dict(frozen_stages=4), 'frozen_stages'),
        (dict(drop_path_rate=1.0), 'drop_path_rate'),
        (dict(out_type='tokens'), "out_type='tokens' must be 'featmap' or"),
        (dict(token_norm_cfg=dict(type='DTM')), "token_norm_cfg: no type 'DTM'"),
        (dict(token_norm_cfg=dict(type='DTN', pool=(4, 2))), 'pool='),
        (dict(stem_cfg=dict(type='DualPatch')), "stem_cfg: no type 'DualPatch'"),
        (dict(norm_cfg=dict(eps=1e-6)), 'norm_cfg'),
    ],
)
def test_arguments_that_do_not_fit_are_named(cls, kwargs, message):
    arch = BACKBONES[cls]['arch']
    changed = {key: kwargs[key] for key in kwargs if key in arch}
    kwargs = {key: value for key, value in kwargs.items() if key not in arch}
    with pytest.raises(ValueError, match=message):
        build(cls, **({'arch': arch | changed} | kwargs))
