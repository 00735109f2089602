"""PVT of 1.7 million parameters, patches of 4 x 4 pixels: grids of 16 x 16 to 2 x 2 tokens."""

_base_ = './classifier.py'

model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='mini',
        pretrain_img_size=64,
        out_type='cls_token',
        drop_path_rate=0.0,
    ),
    head=dict(in_channels=256),
)
