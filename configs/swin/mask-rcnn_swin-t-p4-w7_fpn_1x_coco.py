"""Mask R-CNN on Swin-T with LayerNorm, from the Swin authors' ImageNet weights: the baseline of its twins.

AdamW with learning rate 1e-4 for 8 x 2 images, weight decay 0.05 but for norms, lambda and bias tables, 1000 iterations
of warm-up, as in mmdet.
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(relative_position_bias_table=dict(decay_mult=0.0))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
