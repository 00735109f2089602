"""A small ViT, patches of 16 x 16 pixels: a grid of 4 x 4 tokens.

In every arm the class token joins before the last block, as DTN needs it: the arms differ in the norms only.
"""

_base_ = './classifier.py'

model = dict(
    backbone=dict(
        type='tokennorm.ViT',
        arch=dict(embed_dims=96, depth=6, num_heads=4, mlp_ratio=4),
        patch_size=16,
        l_dtn=5,
        pretrain_img_size=64,
        out_type='cls_token',
        drop_path_rate=0.0,
    ),
    head=dict(in_channels=96),
)
