"""`type='tokennorm.…'` and bare types resolve in every scope."""

import pytest
import torch
from mmengine import DefaultScope
from mmengine.registry import MODELS as ROOT

from tokennorm.layers import STEMS, DualPatchEmbed, PatchEmbed, build_stem
from tokennorm.layers.building import build_norm
from tokennorm.norms import DTN, NORMS, LayerNorm
from tokennorm.registry import MODELS


@pytest.mark.parametrize('scope', ['mmdet', 'mmpretrain', 'mmengine'])
@pytest.mark.parametrize('name', ['{}', 'tokennorm.{}'])
def test_inner_types_resolve_bare_and_prefixed_in_every_scope(scope, name):
    with DefaultScope.overwrite_default_scope(scope):
        assert type(build_norm(dict(type=name.format('DTN'), eps=1e-3), 8, 2)) is DTN
        assert type(build_norm(dict(type=name.format('LN')), 8, 2)) is LayerNorm
        assert type(build_norm(dict(type=name.format('LayerNorm')), 8, 2)) is LayerNorm
        assert type(build_stem(dict(type=name.format('DualPatchEmbed')), patch_size=4)) is DualPatchEmbed
        assert type(build_stem(None, patch_size=4)) is PatchEmbed


def test_our_names_do_not_leak_into_other_scopes():
    assert ROOT.get('DualPatchEmbed') is None
    assert ROOT.get('tokennorm.DualPatchEmbed') is DualPatchEmbed
    assert MODELS.scope == 'tokennorm'
    assert MODELS.parent is ROOT
    assert torch.nn.LayerNorm in LayerNorm.__bases__


def test_every_norm_and_stem_is_registered_under_its_names():
    for name, cls in (NORMS | STEMS).items():
        assert MODELS.get(name) is cls
        assert cls.__name__ in NORMS | STEMS


def test_a_registered_norm_of_the_user_is_found_by_name_bare_and_prefixed():
    @MODELS.register_module(name='NormOfTheUser')
    class NormOfTheUser(LayerNorm):
        pass

    try:
        for name in ('NormOfTheUser', 'tokennorm.NormOfTheUser'):
            assert type(build_norm(dict(type=name, eps=1e-3), 8)) is NormOfTheUser
        with pytest.raises(ValueError, match='did you mean NormOfTheUser'):
            build_norm(dict(type='NormOfTheUsr'), 8)
        with pytest.raises(ValueError, match='NormOfTheUser is not a patch embedding'):
            build_stem(dict(type='NormOfTheUser'))
    finally:
        MODELS.module_dict.pop('NormOfTheUser')
