"""Mask2Former on Swin-T with LayerNorm, initialized from the Swin authors' ImageNet weights.

The recipe is mmdet's for Swin-T.
"""

_base_ = 'mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.3,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
    panoptic_head=dict(in_channels=[96, 192, 384, 768]),
)
no_decay = dict(lr_mult=1.0, decay_mult=0.0)
optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        decay_rate=1.0,
        backbone_lr_mult=0.1,
        norm_decay_mult=0.0,
        custom_keys=dict(query_embed=no_decay, query_feat=no_decay, level_embed=no_decay),
    ),
)
