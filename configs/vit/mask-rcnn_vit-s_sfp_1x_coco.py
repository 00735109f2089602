"""Mask R-CNN on ViT-S with a simple feature pyramid and LayerNorm, from DeiT's weights: the baseline of its twins.

After ViTDet: windows of 14 x 14 tokens, four blocks with global attention, relative positions in all of them, AdamW
with 1e-4, a layer decay of 0.7 and a weight decay of 0.1 but for norms, lambda and positions, and a warm-up of 16,000
images. What is not ViTDet's: 12 epochs of 8 x 2 images with sides of 1333 x 800, where it has 100 of 64 images, 1024 x
1024, jittered in scale, at the same learning rate; DeiT's weights, not MAE's; mmdet's heads as on the other
backbones, without norms and with one convolution in the RPN; float32.
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.ViT',
        arch='small',
        rel_pos=64,
        init_cfg=dict(
            type='Pretrained', checkpoint='https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth'
        ),
    ),
    neck=dict(_delete_=True, type='tokennorm.SimpleFeaturePyramid', in_channels=384, num_outs=5),
)
optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
