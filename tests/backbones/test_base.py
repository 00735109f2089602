"""What the backbones have in common: outputs, gradients, freezing, activation checkpointing, norms, initialization."""

import ast

import pytest
import torch
from mmengine.registry import MODELS
from torch import nn

from tests.helpers import pvt as pvt_helpers
from tests.helpers.backbones import ARCH, BACKBONES, PYRAMIDS, SR_RATIOS, VIT_ARCH, blocks, build, parts
from tests.helpers.compare import assert_near
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT, PVTv2, Swin, ViT, pvt, pvt_v2, swin, vit
from tokennorm.checkpoints import from_published_pvt, from_published_pvt_v2, from_published_swin
from tokennorm.layers import DualPatchEmbed
from tokennorm.layers import block as layers
from tokennorm.norms import DTN, BatchNorm, LayerNorm

of_every_backbone = pytest.mark.parametrize('cls', BACKBONES)
of_every_pyramid = pytest.mark.parametrize('cls', PYRAMIDS)
of_every_form = pytest.mark.parametrize(
    ('cls', 'kwargs'),
    [
        (PVT, dict()),
        (PVT, dict(out_type='cls_token', token_norm_stages=2)),
        (PVTv2, dict()),
        (PVTv2, dict(arch=ARCH | SR_RATIOS | dict(linear=True))),
        (Swin, dict()),
        (Swin, dict(out_type='avg_featmap')),
        (ViT, dict(l_dtn=2)),
        (ViT, dict(out_type='cls_token', l_dtn=2)),
    ],
)


@of_every_backbone
def test_registry_output_shapes_and_feature_info(cls):
    model = MODELS.build(dict(type=f'tokennorm.{cls.__name__}', out_indices=(2, 1), **BACKBONES[cls]))
    assert type(model) is cls
    maps = [tuple(out.shape) for out in model(torch.randn(1, 3, 50, 70))]
    vector = build(cls, out_type='avg_featmap' if cls in (PVTv2, Swin) else 'cls_token')
    assert [out.shape for out in vector(torch.randn(2, 3, 50, 70))] == [(2, 24)]
    (last,) = vector.feature_info
    if cls is ViT:
        assert maps == [(1, 24, 7, 9)] * 2
        assert model.feature_info == [dict(num_chs=24, reduction=8, module=f'blocks.{i}') for i in (1, 2)]
        assert [last] == build(ViT).feature_info == [dict(num_chs=24, reduction=8, module='blocks.3')]
    else:
        assert maps == [(1, 16, 7, 9), (1, 24, 4, 5)]
        rows = [
            dict(num_chs=c, reduction=r, module=f'stages.{i}') for i, (c, r) in enumerate([(8, 4), (16, 8), (24, 16)])
        ]
        assert (build(cls).feature_info, model.feature_info, last) == (rows, rows[1:], rows[2])


@of_every_form
@pytest.mark.parametrize(('norm', 'stem'), [('LN', 'PatchEmbed'), ('DTN', 'DualPatchEmbed')])
def test_every_parameter_gets_a_gradient_at_an_odd_size(cls, kwargs, norm, stem):
    model = build(cls, token_norm_cfg=dict(type=norm), stem_cfg=dict(type=stem), in_channels=4, **kwargs)
    outs = model(torch.randn(2, 4, 75, 101))
    shapes = [(2, 24, 10, 13)] if cls is ViT else [(2, 8, 19, 26), (2, 16, 10, 13), (2, 24, 5, 7)]
    assert [tuple(out.shape) for out in outs] == ([(2, 24)] if 'out_type' in kwargs else shapes)
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0] == []


@of_every_form
def test_images_of_a_batch_do_not_see_each_other(cls, kwargs):
    """With and without gradients, which Swin's attention computes by different kernels."""
    model = randomize(build(cls, token_norm_cfg=dict(type='DTN'), **kwargs))
    images = torch.randn(3, 3, 75, 101)
    for needs_grad in (False, True):
        with torch.set_grad_enabled(needs_grad):
            alone = torch.cat([model(image[None])[-1] for image in images])
            assert_near('last output', model(images)[-1], alone)
            assert model(images[:0])[-1].shape == (0, *alone.shape[1:]), 'a batch of no image'


@of_every_form
def test_activation_checkpointing_keeps_gradients(cls, kwargs, monkeypatch):
    plain, recomputed = (build(cls, token_norm_cfg=dict(type='DTN'), with_cp=cp, **kwargs) for cp in (False, True))
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
    assert calls == [False] * len(blocks(recomputed))


VIT_STEM = ('patch_embed.', 'pos_embed')
FROZEN = [
    *((cls, -1, {}, ('none',)) for cls in BACKBONES),
    *((cls, 0, {}, ('stages.0.patch_embed.',)) for cls in PYRAMIDS),
    *((cls, 2, {}, ('stages.0.', 'stages.1.')) for cls in PYRAMIDS),
    *((cls, 3, {}, ('stages.',)) for cls in PYRAMIDS),
    (ViT, 0, {}, VIT_STEM),
    (ViT, 0, dict(out_type='cls_token', l_dtn=0), (*VIT_STEM, 'cls_token')),
    (ViT, 0, dict(out_type='cls_token', l_dtn=2), VIT_STEM),
    (ViT, 2, dict(out_type='cls_token', l_dtn=2), (*VIT_STEM, 'cls_token', 'blocks.0.', 'blocks.1.')),
    (ViT, 4, dict(out_type='cls_token', l_dtn=3), (*VIT_STEM, 'cls_token', 'blocks.', 'norm.')),
    (PVT, 3, dict(out_type='cls_token', token_norm_stages=2), ('stages.', 'norm.')),
    (ViT, 4, {}, (*VIT_STEM, 'blocks.')),
]


@pytest.mark.parametrize(('cls', 'frozen_stages', 'kwargs', 'frozen'), FROZEN)
def test_frozen_stages_stay_frozen_in_training(cls, frozen_stages, kwargs, frozen):
    model = build(cls, frozen_stages=frozen_stages, drop_path_rate=0.2, **kwargs).train()
    for name, p in model.named_parameters():
        assert p.requires_grad is not name.startswith(frozen), name
    assert [part.training for part in parts(model)] == [i >= frozen_stages for i in range(len(parts(model)))]
    stem = model if cls is ViT else model.stages[0]
    assert stem.patch_embed.training is (frozen_stages < 0)


@of_every_backbone
@pytest.mark.parametrize('out_indices', [(0,), (1,), (2,), (0, 1), (2, 0), (0, 1, 2)])
def test_what_no_output_needs_is_not_trained(cls, out_indices):
    """Distributed training then needs no `find_unused_parameters`."""
    model = build(cls, out_indices=out_indices, **(dict(rel_pos=4) if cls is ViT else {}))
    sum(out.square().sum() for out in model(torch.randn(1, 3, 32, 32))).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {name for name, p in model.named_parameters() if not p.requires_grad}
    after = tuple(f'{kind}.{i}.' for kind in ('stages', 'blocks') for i in range(max(out_indices) + 1, 4))
    skipped = [i for i in range(max(out_indices)) if i not in out_indices]
    norms = {f'stages.{i}.norm.{kind}' for i in skipped for kind in ('weight', 'bias')} if cls is Swin else set()
    assert without == norms | {name for name, _ in model.named_parameters() if name.startswith(after)}


@of_every_pyramid
def test_token_norms_have_their_stages_heads_and_pools(cls):
    model = build(cls, token_norm_cfg=dict(type='DTN', eps=1e-4), stem_cfg=dict(type='DualPatchEmbed'))
    norms = [norm for block in blocks(model) for norm in (block.norm1, block.norm2)]
    assert {type(norm) for norm in norms} == {DTN}
    stages = [0] * 4 + [1] * 4 + [2] * 2
    assert [(n.pool, n.num_heads, n.eps) for n in norms] == [((4, 2, 1)[s], (1, 2, 4)[s], 1e-4) for s in stages]
    assert sum(type(module) is DTN for module in model.modules()) == len(norms)
    assert [type(stage.patch_embed) is DualPatchEmbed for stage in model.stages] == [True, False, False]
    patch = 7 if cls is PVTv2 else 4  # PVTv2's patches overlap
    assert model.stages[0].patch_embed.patch_norm.normalized_shape == (3 * patch**2,)
    one_pool = blocks(build(cls, token_norm_cfg=dict(type='DTN', pool=1)))
    assert {block.norm1.pool for block in one_pool} == {1}
    model = build(cls, token_norm_cfg=dict(type='DTN', pool=(3, 2, 2)), token_norm_stages=1)
    assert [(type(s.blocks[-1].norm2), getattr(s.blocks[0].norm1, 'pool', None)) for s in model.stages] == [
        (DTN, 3),
        (LayerNorm, None),
        (LayerNorm, None),
    ]


@pytest.mark.parametrize(('cls', 'pools'), [(PVT, [4, 2, 1, None]), (PVTv2, [4, 2, 1, 1]), (Swin, [4, 2, 1, 1])])
def test_default_stages_of_token_norms(cls, pools):
    """The papers' PVT keeps LayerNorm in its last stage."""
    with torch.device('meta'):
        model = cls(token_norm_cfg=dict(type='DTN'))
    assert [getattr(stage.blocks[-1].norm2, 'pool', None) for stage in model.stages] == pools


@of_every_pyramid
def test_dual_patch_norm_ignores_norm_cfg(cls):
    """LayerNorm with eps 1e-6 unless `stem_cfg` sets it; the second norm is that of the backbone's plain stem."""
    for norm_cfg, second in ((None, (LayerNorm, 1e-5)), (dict(type='BN', eps=1e-3), (BatchNorm, None))):
        stem = build(cls, norm_cfg=norm_cfg, stem_cfg=dict(type='DualPatchEmbed')).stages[0].patch_embed
        assert (type(stem.patch_norm), stem.patch_norm.eps) == (LayerNorm, 1e-6)
        assert (type(stem.norm), getattr(stem.norm, 'eps', None)) == second
    stem_cfg = dict(type='DualPatchEmbed', patch_norm_cfg=dict(type='LN', eps=1.0))
    assert build(cls, stem_cfg=stem_cfg).stages[0].patch_embed.patch_norm.eps == 1.0


@of_every_backbone
def test_drop_path_grows_with_depth(cls):
    rates = [block.drop_path.rate for block in blocks(build(cls, drop_path_rate=0.4))]
    assert rates == pytest.approx(torch.linspace(0, 0.4, len(rates)).tolist())


@of_every_backbone
def test_initial_linear_layers_are_the_published_ones(cls):
    """Truncated normal weights of 0.02, biases of 0: those of every published model."""
    wide = VIT_ARCH | dict(embed_dims=96) if cls is ViT else BACKBONES[cls]['arch'] | dict(embed_dims=[32, 48, 96])
    linear = {name: m for name, m in build(cls, arch=wide).named_modules() if isinstance(m, nn.Linear)}
    assert len(linear) >= 16
    for name, module in linear.items():
        assert 0.018 < module.weight.std() < 0.022, name
        assert module.bias is None or (module.bias == 0).all(), name


# eps of the norms in the stems and the spatial reductions, and of all others
@pytest.mark.parametrize(('cls', 'stem', 'others'), [(PVT, 1e-5, 1e-6), (PVTv2, 1e-5, 1e-6), (Swin, 1e-5, 1e-5)])
def test_eps_of_pyramids_is_the_published_one(cls, stem, others):
    eps = {name: m.eps for name, m in build(cls).named_modules() if isinstance(m, nn.LayerNorm)}
    of_stems = {name for name in eps if 'attn.norm' in name or 'patch_embed' in name}
    assert {eps[name] for name in of_stems} == {stem}
    assert {eps[name] for name in eps.keys() - of_stems} == {others}


# Parameters of the authors' classifiers, heads of 1000 classes included, in millions: PVT, Table 1; PVTv2, model zoo;
# Swin, Table 1; DTN paper, Table 1.
PARAMETERS = [
    (PVT, pvt.ARCHS, 'cls_token', {f'{a}{d}': n for d in ('', '-dtn') for a, n in
        dict(tiny=13.2, small=24.5, medium=44.2, large=61.4).items()}),
    (PVTv2, pvt_v2.ARCHS, 'avg_featmap',
        {'b0': 3.7, 'b1': 14.0, 'b2': 25.4, 'b2-li': 22.6, 'b3': 45.2, 'b4': 62.6, 'b5': 82.0}),
    (Swin, swin.ARCHS, 'avg_featmap', dict(tiny=28.3, small=49.6, base=87.8, large=196.5)),
    (ViT, vit.ARCHS, 'cls_token',
        {'tiny': 5.7, 'small': 22.1, 'base': 86.6, 'tiny*': 5.7, 'small*': 27.8, 'base*': 86.6}),
]  # fmt: skip


@pytest.mark.parametrize(('cls', 'archs', 'out_type', 'millions'), PARAMETERS)
def test_number_of_parameters_is_the_published_one(cls, archs, out_type, millions, monkeypatch):
    monkeypatch.setattr(nn.init, 'trunc_normal_', lambda tensor, **_: tensor)  # slow, also without values
    assert archs.keys() - {'mini'} == millions.keys()
    for arch, expected in millions.items():
        with torch.device('meta'):
            model = cls(arch, out_type=out_type)
        head = 1000 * (model.feature_info[-1]['num_chs'] + 1)
        assert round((sum(p.numel() for p in model.parameters()) + head) / 1e6, 1) == expected, arch


def published_arch(meta):
    """The arguments of the published model, in TokenNorm's words."""
    if 'window_size' not in meta:
        return {key: meta[key] for key in pvt_helpers.ARCH}
    mlp_ratios, embed_dims = [int(meta['mlp_ratio'])] * 4, [meta['embed_dim'] * 2**i for i in range(4)]
    return dict(embed_dims=embed_dims, depths=meta['depths'], num_heads=meta['num_heads'], mlp_ratios=mlp_ratios)


@pytest.mark.parametrize(
    ('cls', 'name', 'convert', 'argument'),
    [
        (PVT, 'pvt', from_published_pvt, 'pretrain_img_size'),
        (PVTv2, 'pvt_v2', from_published_pvt_v2, None),
        (Swin, 'swin', from_published_swin, 'window_size'),
    ],
)
def test_equals_the_published_backbone(cls, name, convert, argument, published_case):
    """At 64 x 64 and 75 x 101, where Swin pads every map to whole windows, and most are smaller than two."""
    case = published_case(f'{name}_published_tiny.npz')
    meta = ast.literal_eval(case['meta'])
    assert cls is Swin or meta['norm_eps'] == 1e-6
    model = cls(published_arch(meta), **({argument: meta[argument]} if argument else {})).eval()
    params = {key.removeprefix('param.'): value for key, value in case.items() if key.startswith('param.')}
    model.load_state_dict(convert(params), strict=True)
    for size in (0, 1):
        for stage, actual in enumerate(model(case[f'x{size}'])):
            assert_near(f'stage {stage} at size {size}', actual, case[f'y{size}_{stage}'])
