"""A small Swin: patches of 4 x 4 pixels, windows of 4 x 4 tokens, grids of 16 x 16 to 2 x 2 tokens."""

_base_ = './classifier.py'

model = dict(
    backbone=dict(
        type='tokennorm.Swin',
        arch=dict(embed_dims=(24, 48, 96, 192), depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8), mlp_ratios=(4, 4, 4, 4)),
        window_size=4,
        out_type='avg_featmap',
        drop_path_rate=0.0,
    ),
    head=dict(in_channels=192),
)
