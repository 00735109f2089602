"""DINO on Swin-T with LayerNorm, initialized from the Swin authors' ImageNet weights.

The recipe is mmdet's for ResNet-50; norms and bias tables of the backbone have no weight decay.
"""

_base_ = 'mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor', pad_size_divisor=32),
    backbone=dict(
        _delete_=True,
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.2,
        out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
    neck=dict(in_channels=[192, 384, 768]),
)
optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(_delete_=True, decay_rate=1.0, backbone_lr_mult=0.1, norm_decay_mult=0.0),
)
