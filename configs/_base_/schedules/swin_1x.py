"""12 epochs with AdamW, learning rate 1e-4 for 8 x 2 images, as mmdet has it for Mask R-CNN on Swin.

The weight decay of 0.05 spares norms, lambda and bias tables, and the warm-up takes 1000 iterations.
"""

_base_ = 'mmdet::_base_/schedules/schedule_1x.py'

optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(relative_position_bias_table=dict(decay_mult=0.0))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
