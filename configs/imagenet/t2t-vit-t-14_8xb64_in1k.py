"""T2T-ViT_t-14 of mmpretrain with LayerNorm on ImageNet-1k, by mmpretrain's config.

projects/experiments/ablations/README.md has the options for DTN.
"""

_base_ = 'mmpretrain::t2t_vit/t2t-vit-t-14_8xb64_in1k.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='tokennorm.ReplacedNorms',
        model=dict(
            type='mmpretrain.T2T_ViT',
            img_size=224,
            embed_dims=384,
            t2t_cfg=dict(token_dims=64, use_performer=False),
            num_layers=14,
            layer_cfgs=dict(num_heads=6, feedforward_channels=3 * 384),
            drop_path_rate=0.1,
            init_cfg=[
                dict(type='TruncNormal', layer='Linear', std=0.02),
                dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
            ],
        ),
        norm_args=dict(),
    )
)
