"""Layer decay: the learning rate and the weight decay of every parameter of each backbone, in detectors and alone."""

import re

import pytest
from mmengine import DefaultScope
from mmpretrain.engine.optimizers import LearningRateDecayOptimWrapperConstructor
from mmpretrain.models.classifiers import ImageClassifier
from torch import nn

from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.models.layer_decay import LayerDecayOptimWrapperConstructor

WIDTHS = dict(embed_dims=[8, 16], depths=[2, 1], num_heads=[1, 2], mlp_ratios=[2, 2])
PVT_ARCH = WIDTHS | dict(sr_ratios=[2, 1])
VIT_ARCH = dict(embed_dims=8, depth=3, num_heads=2, mlp_ratio=2)
DTN = dict(token_norm_cfg=dict(type='DTN'))
BACKBONES = {
    'PVT': lambda: PVT(PVT_ARCH, pretrain_img_size=32, token_norm_stages=1, out_type='cls_token', **DTN),
    'PVTv2': lambda: PVTv2(PVT_ARCH, **DTN),
    'Swin': lambda: Swin(WIDTHS, window_size=4, **DTN),
    'ViT': lambda: ViT(VIT_ARCH, pretrain_img_size=32, out_type='cls_token', l_dtn=1, **DTN),
    'DeiT': lambda: ViT(VIT_ARCH, pretrain_img_size=32, out_type='cls_token'),
    'ViTDet': lambda: ViT(VIT_ARCH, pretrain_img_size=32, rel_pos=4, **DTN),
}
# The depth of every parameter by the start of its name, of 5: stem, three blocks, and what lies behind them.
STAGES = {'stages.0.blocks.0': 1, 'stages.0.blocks.1': 2, 'stages.1.blocks.0': 3}
STEMS = {'stages.0.patch_embed': 0, 'stages.1.patch_embed': 2}
BLOCKS = {'blocks.0': 1, 'blocks.1': 2, 'blocks.2': 3, 'patch_embed': 0, 'pos_embed': 0}
DEPTHS = {
    'PVT': STAGES | STEMS | {'stages.0.pos_embed': 0, 'stages.1.pos_embed': 2, 'stages.1.cls_token': 2, 'norm': 4},
    'PVTv2': STAGES | STEMS | {'stages.0.norm': 2, 'stages.1.norm': 3},
    'Swin': STAGES | STEMS | {'stages.0.norm': 4, 'stages.1.norm': 4},
    'ViT': BLOCKS | {'cls_token': 1, 'norm': 4},
    'DeiT': BLOCKS | {'cls_token': 0, 'norm': 4},
    'ViTDet': BLOCKS,
}


def wrapper(model, weight_decay=0.1, **paramwise_cfg):
    optimizer = dict(type='AdamW', lr=1e-3, weight_decay=weight_decay)
    constructor = LayerDecayOptimWrapperConstructor(dict(optimizer=optimizer), dict(decay_rate=0.5) | paramwise_cfg)
    return constructor(model)


def settings(model, optim_wrapper):
    """Learning rate and weight decay of every parameter that is trained."""
    groups = {id(p): (g['lr'], g['weight_decay']) for g in optim_wrapper.param_groups for p in g['params']}
    return {name: groups[id(p)] for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize('name', BACKBONES)
def test_every_parameter_has_the_learning_rate_of_its_depth(name):
    model = nn.Module()
    model.backbone = BACKBONES[name]()
    model.head = nn.Linear(8, 3)
    depths = {f'backbone.{part}': depth for part, depth in DEPTHS[name].items()} | {'head': 4}
    found = set()
    for param, (lr, _) in settings(model, wrapper(model)).items():
        (part,) = [part for part in depths if param == part or param.startswith(part + '.')]
        found.add(part)
        assert lr == pytest.approx(1e-3 * 0.5 ** (4 - depths[part]), rel=1e-12), param
    assert found == set(depths)


@pytest.mark.parametrize('name', BACKBONES)
def test_positions_ratios_and_bias_tables_have_no_weight_decay(name):
    model = BACKBONES[name]()
    free = re.compile(r'(.*\.)?(pos_embed|cls_token|relative_position_bias_table|position|mean_logit|var_logit)')
    for rules in ({}, dict(norm_decay_mult=0.0, bias_decay_mult=0.5)):
        norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters(recurse=False)}
        decayed = {param: decay for param, (_, decay) in settings(model, wrapper(model, **rules)).items()}
        for param, p in model.named_parameters():
            if free.fullmatch(param) or (rules and id(p) in norms):
                expected = 0.0
            elif rules and param.endswith('bias'):
                expected = 0.05
            else:
                expected = 0.1
            assert decayed[param] == pytest.approx(expected), param


def test_custom_keys_multiply_the_rate_and_say_the_decay():
    model = BACKBONES['ViT']()
    keys = {'blocks.1.': dict(lr_mult=3.0), 'pos_embed': dict(decay_mult=0.25), '.cls_token': dict(lr_mult=2.0)}
    found = settings(model, wrapper(model, custom_keys=keys, norm_decay_mult=0.0, bias_lr_mult=10.0))
    assert found['blocks.1.mlp.fc1.weight'] == pytest.approx((3e-3 * 0.25, 0.1))
    assert found['blocks.1.norm1.weight'] == pytest.approx((3e-3 * 0.25, 0.1))
    assert found['blocks.2.norm1.weight'] == pytest.approx((1e-3 * 0.5, 0.0))
    assert found['blocks.2.mlp.fc1.bias'] == pytest.approx((1e-2 * 0.5, 0.1))
    assert found['pos_embed'] == pytest.approx((1e-3 * 0.0625, 0.025))
    assert found['cls_token'] == pytest.approx((2e-3 * 0.125, 0.1))


def test_rate_of_the_backbone_keeps_the_rules_of_norms_and_biases():
    model = nn.ModuleDict(dict(backbone=BACKBONES['PVTv2'](), neck=nn.Linear(4, 4)))
    found = settings(model, wrapper(model, decay_rate=1.0, backbone_lr_mult=0.2, norm_decay_mult=0.0))
    assert found['backbone.stages.0.blocks.0.mlp.fc1.weight'] == pytest.approx((2e-4, 0.1))
    assert found['backbone.stages.0.blocks.0.norm1.weight'] == pytest.approx((2e-4, 0.0))
    assert found['neck.weight'] == pytest.approx((1e-3, 0.1))


def test_all_parameters_except_frozen_ones_are_in_a_group():
    model = ViT(VIT_ARCH, pretrain_img_size=32, frozen_stages=2)
    found = wrapper(model).optimizer.param_groups
    assert sum(len(group['params']) for group in found) == len([p for p in model.parameters() if p.requires_grad])
    assert {group['lr'] for group in found} == {1e-3 * 0.5}
    assert len(settings(model, wrapper(model))) == len(found)


@pytest.mark.parametrize('name', BACKBONES)
def test_mmpretrains_constructor_gives_the_same_rates(name):
    """Backbones say their depths in mmpretrain's words."""
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = ImageClassifier(backbone=BACKBONES[name](), head=None)
    model.head = nn.Linear(8, 3)
    optimizer = dict(optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.1))
    theirs = LearningRateDecayOptimWrapperConstructor(optimizer, dict(layer_decay_rate=0.5))(model)
    ours, theirs = (settings(model, w) for w in (wrapper(model), theirs))
    assert {name: lr for name, (lr, _) in ours.items()} == {name: lr for name, (lr, _) in theirs.items()}


@pytest.mark.parametrize(
    ('paramwise_cfg', 'message'),
    [
        (None, 'decay_rate=None'),
        (dict(decay_rate=0), 'decay_rate=0 must be above 0'),
    ],
)
def test_rules_that_do_not_fit_are_named(paramwise_cfg, message):
    with pytest.raises(ValueError, match=message):
        LayerDecayOptimWrapperConstructor(dict(optimizer=dict(type='SGD', lr=1.0)), paramwise_cfg)
