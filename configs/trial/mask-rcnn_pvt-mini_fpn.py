"""Mask R-CNN on PVT-mini with LayerNorm, for photographs with masks, on a CPU; its weights come with this package."""

_base_ = '../demo/mask-rcnn_pvt-mini_fpn_nuclei.py'

model = dict(
    type='tokennorm.MaskRCNN',  # padding does not enter
    backbone=dict(pretrain_img_size=64, init_cfg=dict(type='Pretrained', checkpoint='tokennorm:pvt-mini')),
    rpn_head=dict(anchor_generator=dict(scales=[8])),
)
image_scale = (416, 320)
train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # Resize
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
optim_wrapper = dict(optimizer=dict(lr=5e-4))
