"""12 epochs with AdamW after ViTDet: 1e-4 with a layer decay of 0.7, a warm-up of 16,000 images.

The weight decay of 0.1 spares norms, lambda and position embeddings, and not relative positions, as in ViTDet. What is
not ViTDet's: 12 epochs of 8 x 2 images, where it has 100 of 64 images at the same learning rate.
"""

_base_ = 'mmdet::_base_/schedules/schedule_1x.py'

optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
