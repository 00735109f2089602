"""Arguments that cannot be right are ValueErrors that name them, when a backbone or a stem is built."""

from itertools import product

import pytest

from tokennorm import backbones
from tokennorm.layers.building import build_norm

STAGES = dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(1, 2), mlp_ratios=(1, 1))
ARCHS = dict(
    PVT=dict(STAGES, sr_ratios=(2, 1)),
    PVTv2=dict(STAGES, sr_ratios=(2, 1)),
    Swin=STAGES,
    ViT=dict(embed_dims=8, depth=2, num_heads=2, mlp_ratio=1),
)
NOT_ALLOWED = {
    'arch': [None, 3, ['tiny'], 'TINY', 'tinny', {}],
    'in_channels': [0, -1, '3', None, 2.5],
    'out_indices': [[7], [-1], (), 'abc', 3, [0.5], ['a'], [None]],
    'out_type': ['x', None, 3],
    'frozen_stages': [-2, 9, 'a', None, 1.5],
    'drop_path_rate': [-0.1, 1, None, 'a'],
    'autocast_dtype': ['fp16', 3],
    'norm_cfg': ['LN', dict(type='LNN'), dict(type='LN', ep=1), dict(type='Linear')],
    'stem_cfg': ['DualPatchEmbed', dict(type='LN'), dict(type='DualPatchEmbd'), dict(type='PVT'), 3],
    'token_norm_cfg': ['DTN', 3, dict(type='DNT'), dict(type='DTN', pool=0), dict(type='DTN', pool=2.5)],
}  # fmt: skip
OWN = dict(
    PVT=dict(token_norm_stages=[-1, 3, 'a', 1.5], pretrain_img_size=[0, 'a', (1, 2, 3), None, 2.5]),
    PVTv2=dict(token_norm_stages=[3]),
    Swin=dict(window_size=[1, 'a', None, 2.5], token_norm_stages=[3]),
    ViT=dict(
        window_size=[0, 'a'],
        patch_size=[0, 'a', None],
        l_dtn=[-1, 3, 'a'],
        global_indices=[[2], 3, 'a', ['a']],
        pretrain_img_size=[0, 'a', (1, 2, 3), None],
    ),
)


@pytest.mark.parametrize('backbone', ARCHS)
def test_backbones(backbone):
    for name, values in (NOT_ALLOWED | OWN[backbone]).items():
        for value in values:
            with pytest.raises(ValueError, match=rf'{name}|pool=(0|2.5) must'):
                getattr(backbones, backbone)(**dict(arch=ARCHS[backbone]) | {name: value})


@pytest.mark.parametrize('backbone', ARCHS)
@pytest.mark.parametrize(
    ('name', 'way_out'),
    [
        ('drop_path', r' \(did you mean drop_path_rate\?\)'),
        ('foo', ''),
        ('pretrained', r': use init_cfg=dict\('),
        *((name, ': leave it out: ') for name in ('convert_weights', 'use_abs_pos_embed', 'patch_norm', 'strides')),
        *((name, ': it is part of arch') for name in ('embed_dims', 'depths', 'num_stages', 'num_heads')),
    ],
)
def test_arguments_that_a_backbone_lacks(backbone, name, way_out):
    wanted = rf'^{backbone} has no argument {name!r}{way_out}.*; it has arch, .*_delete_=True'
    for kwargs in (dict(arch=ARCHS[backbone]), {}):
        with pytest.raises(ValueError, match=wanted):
            getattr(backbones, backbone)(**kwargs, **{name: None})


@pytest.mark.parametrize('backbone', ['PVTv2', 'Swin'])
def test_backbones_without_positions_have_no_size_of_them(backbone):
    with pytest.raises(ValueError, match=f"{backbone} has no argument 'pretrain_img_size': leave it out"):
        getattr(backbones, backbone)(ARCHS[backbone], pretrain_img_size=224)


@pytest.mark.parametrize('backbone', ARCHS)
def test_a_row_has_the_keys_of_the_table_and_no_others(backbone):
    row = ARCHS[backbone]
    for wrong in (dict(row, extra=(1, 1)), {key: row[key] for key in list(row)[1:]}):
        with pytest.raises(ValueError, match=rf'{backbone}: arch has the keys .*, expected'):
            getattr(backbones, backbone)(wrong)


@pytest.mark.parametrize('backbone', ARCHS)
def test_rows_of_an_architecture(backbone):
    for key, value in product(ARCHS[backbone], [(0, 1), (1,), 'ab', None, (1.5, 1), 0, -1, 'a']):
        if key == 'mlp_ratios' and value == (1.5, 1):
            continue  # a fractional width is allowed
        with pytest.raises(ValueError, match=rf'{backbone}: .*{key}'):
            getattr(backbones, backbone)(dict(ARCHS[backbone], **{key: value}))


def test_heads_that_do_not_divide_the_channels():
    with pytest.raises(ValueError, match='PVT: num_heads=3 must divide embed_dims=16'):
        backbones.PVT(dict(ARCHS['PVT'], num_heads=(1, 3)))
    with pytest.raises(ValueError, match='ViT: num_heads=3 must divide embed_dims=8'):
        backbones.ViT(dict(ARCHS['ViT'], num_heads=3))
    with pytest.raises(ValueError, match=r'DTN: num_heads=\(1, 2\) must divide num_features=8'):
        build_norm(dict(type='DTN', num_heads=(1, 2)), 8)
    with pytest.raises(ValueError, match='at least 2'):  # an unbiased variance
        build_norm(dict(type='DTN', form='published'), 1)


@pytest.mark.parametrize('mistake', [dict(out_indices=[9]), dict(out_indices=3), dict(timm_args=dict(foo=1))])
def test_what_timm_refuses(mistake):
    pytest.importorskip('timm')
    with pytest.raises(ValueError, match=r'TimmBackbone: out_indices=.* do not fit pvt_v2_b0: '):
        backbones.TimmBackbone('pvt_v2_b0', **mistake)
