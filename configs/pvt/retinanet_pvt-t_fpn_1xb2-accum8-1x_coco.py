"""RetinaNet on PVT-Tiny with LayerNorm on one GPU: 8 batches of 2 images make one step, and blocks are recomputed.

Schedules count batches, not steps: the warm-up is 8 times as long, and lasts as many steps. A step sees the images of
8 x 2 on several GPUs, and `--auto-scale-lr`, which does not count accumulated batches, leaves the rate as it is.
"""

_base_ = './retinanet_pvt-t_fpn_1x_coco.py'

model = dict(backbone=dict(with_cp=True))
optim_wrapper = dict(accumulative_counts=8)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=4000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
auto_scale_lr = dict(base_batch_size=2)
