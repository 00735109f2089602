"""PVT of 1.7 million parameters, patches of 4 x 4 pixels: grids of 16 x 16 to 2 x 2 tokens."""

_base_ = './classifier.py'

model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch=dict(
            embed_dims=(32, 64, 128, 256),
            depths=(1, 1, 2, 1),
            num_heads=(1, 2, 4, 8),
            mlp_ratios=(4, 4, 4, 4),
            sr_ratios=(8, 4, 2, 1),
        ),
        pretrain_img_size=64,
        out_type='cls_token',
        drop_path_rate=0.0,
    ),
    head=dict(in_channels=256),
)
