"""Detectors on small datasets: AdamW with warm-up and a cosine, validation and a checkpoint every third epoch."""

_base_ = 'mmdet::_base_/default_runtime.py'

max_epochs = 24
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=3)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05, fused=True),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
    clip_grad=dict(max_norm=10.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=75),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
default_hooks = dict(
    logger=dict(interval=25),
    checkpoint=dict(interval=3, max_keep_ckpts=1),  # `tokennorm train` keeps the best one by box or mask AP
)
custom_hooks = [dict(type='tokennorm.ReportHook')]
randomness = dict(seed=0)
