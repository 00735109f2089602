"""`type='tokennorm.…'` works in anybody's config without `custom_imports`, under any scope."""

import subprocess
import sys

import pytest
import torch
from mmengine import DefaultScope
from mmengine.registry import MODELS as ROOT

from tokennorm.builder import build_norm, build_stem
from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.norms import DTN, LayerNorm
from tokennorm.registry import MODELS

BUILD = """
import sys
from importlib import import_module
from mmengine import DefaultScope

def build(package):
    assert 'tokennorm' not in sys.modules
    DefaultScope.get_instance('test', scope_name=package)
    cfg = dict(
        type='tokennorm.PVT',
        arch=dict(embed_dims=[8, 16], depths=[1, 1], num_heads=[1, 4], mlp_ratios=[2, 2], sr_ratios=[2, 1]),
        token_norm_cfg=dict(type='DTN'),
        stem_cfg=dict(type='DualPatchEmbed'),
        pretrain_img_size=32,
        out_indices=(0, 1),
        token_norm_stages=2,
    )
    model = import_module(f'{package}.registry').MODELS.build(cfg)
    kinds = [type(m).__name__ for m in model.modules()]
    assert kinds.count('DTN') == 4, kinds
    assert kinds.count('DualPatchEmbed') == 1, kinds

build(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize('scope', ['mmdet', 'mmpretrain'])
def test_a_config_of_any_scope_builds_our_backbone(scope):
    """`test_imports.py` builds it by mmengine's registry."""
    done = subprocess.run([sys.executable, '-c', BUILD, scope], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('scope', ['mmdet', 'mmpretrain', 'mmengine'])
@pytest.mark.parametrize('name', ['{}', 'tokennorm.{}'])
def test_inner_types_resolve_bare_and_prefixed_in_every_scope(scope, name):
    with DefaultScope.overwrite_default_scope(scope):
        assert type(build_norm(dict(type=name.format('DTN'), eps=1e-3), 8, 2)) is DTN
        assert type(build_norm(dict(type=name.format('LN')), 8, 2)) is LayerNorm
        assert type(build_norm(dict(type=name.format('LayerNorm')), 8, 2)) is LayerNorm
        assert type(build_stem(dict(type=name.format('DualPatchEmbed')), patch_size=4)) is DualPatchEmbed
        assert type(build_stem(None, patch_size=4)) is PatchEmbed


def test_build_norm_passes_heads_and_supported_options():
    norm = build_norm(dict(type=DTN, eps=1e-3), 12, 3, pool=2)
    assert (norm.num_heads, norm.eps, norm.pool) == (3, 1e-3, 2)
    assert build_norm(dict(type='DTN', pool=4), 12, 3, pool=2).pool == 4
    assert build_norm(dict(type='LN', eps=1e-3), 12, 3, pool=2).eps == 1e-3
    assert build_norm(dict(type='GN', num_groups=4), 12, 3, pool=2).num_groups == 4


@pytest.mark.parametrize('kind', [torch.nn.LayerNorm, torch.nn.BatchNorm2d, DualPatchEmbed])
def test_build_norm_takes_what_is_called_like_a_token_norm_alone(kind):
    with pytest.raises(ValueError, match=f'norm_cfg: {kind.__name__} does not normalize token grids'):
        build_norm(dict(type=kind), 12)


def test_build_norm_takes_norms_of_others_that_keep_the_contract():
    class Theirs(torch.nn.Module):
        is_token_norm = True

        def __init__(self, num_features):
            super().__init__()

        def forward(self, x, valid=None):
            return x

    assert type(build_norm(dict(type=Theirs), 12, 3, pool=2)) is Theirs


def test_our_names_do_not_leak_into_other_scopes():
    assert ROOT.get('DualPatchEmbed') is None
    assert ROOT.get('tokennorm.DualPatchEmbed') is DualPatchEmbed
    assert MODELS.scope == 'tokennorm'
    assert MODELS.parent is ROOT
    assert torch.nn.LayerNorm in LayerNorm.__bases__
