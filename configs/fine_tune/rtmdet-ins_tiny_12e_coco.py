"""RTMDet-Ins-tiny, which fine-tunes mmdet's COCO weights on `--data DIR`; without it, it trains on COCO.

Mosaic and MixUp, batch and rate: projects/experiments/fine_tuning
"""

_base_ = 'mmdet::rtmdet/rtmdet-ins_tiny_8xb32-300e_coco.py'

max_epochs = 12
train_dataloader = dict(batch_size=4, num_workers=2, dataset=dict(pipeline=_base_.train_pipeline_stage2))
train_cfg = dict(max_epochs=max_epochs, val_interval=1, dynamic_intervals=None)
optim_wrapper = dict(optimizer=dict(lr=0.001))
auto_scale_lr = dict(base_batch_size=4)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(begin=max_epochs // 2, end=max_epochs, T_max=max_epochs // 2, eta_min=5e-5)
default_hooks = dict(checkpoint=dict(interval=1))
custom_hooks = [_base_.custom_hooks[0]]  # the average of the weights
