"""Mask R-CNN on DINOv3's ViT-B/16, on one GPU.

A step has 8 batches of 2 images, with activation checkpointing. Schedules count batches, so the warm-up has 8 times as
many iterations as on 8 GPUs. `--auto-scale-lr` does not count accumulated batches and leaves the learning rate as it
is.
"""

_base_ = './mask-rcnn_dinov3-vit-b_sfp_1x_coco.py'

model = dict(backbone=dict(with_cp=True))
optim_wrapper = dict(accumulative_counts=8)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=8000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
auto_scale_lr = dict(base_batch_size=2)
