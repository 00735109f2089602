"""RetinaNet on a PVT of 1.7 to 2 million parameters, by the size of its images, small enough to train on a CPU."""

_base_ = './retinanet_fpn.py'

norm_cfg = dict(type='tokennorm.LN2d')
model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='mini',
        token_norm_cfg=dict(type='LN', eps=1e-6),
        stem_cfg=dict(type='PatchEmbed'),
        drop_path_rate=0.0,
    ),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64, num_outs=3, norm_cfg=norm_cfg),
    bbox_head=dict(
        in_channels=64,
        feat_channels=64,
        stacked_convs=2,
        norm_cfg=norm_cfg,
        anchor_generator=dict(octave_base_scale=3, strides=[8, 16, 32]),  # sides of 24 to 152 pixels
    ),
)
