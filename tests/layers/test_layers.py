"""`tokennorm.layers.build_stem`: the patch embedding of `stem_cfg`."""

import pytest

from tests.helpers.pvt import ARCH
from tokennorm.backbones import PVTv2
from tokennorm.layers import build_stem


def test_a_stem_is_as_the_backbone_has_it():
    with pytest.raises(ValueError, match='stem_cfg: embed_dims=7 must be 8, as the backbone has it'):
        build_stem(dict(type='DualPatchEmbed', embed_dims=7), embed_dims=8)
    with pytest.raises(ValueError, match='stem_cfg: LayerNorm is not a patch embedding'):
        build_stem(dict(type='LN'))
    PVTv2(ARCH, stem_cfg=dict(type='DualPatchEmbed', kernel_size=None))
