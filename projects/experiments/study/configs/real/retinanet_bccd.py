"""RetinaNet on PVT-mini, blood cells at 320 x 240 pixels: LN and DTN, both initialized with the weights of LN."""

_base_ = [
    '../../../../../configs/_base_/models/retinanet_pvt-mini_fpn.py',
    '../../../../../configs/_base_/datasets/bccd_detection.py',
    '../../../../../configs/_base_/schedules/adamw_cosine.py',
]

max_epochs = 12
norm_cfg = dict(type='GN', num_groups=8)  # as the kept runs were trained
model = dict(
    backbone=dict(pretrain_img_size=64),
    neck=dict(norm_cfg=norm_cfg),
    bbox_head=dict(num_classes=len(_base_.metainfo['classes']), norm_cfg=norm_cfg),
)
no_workers = dict(num_workers=0, persistent_workers=False)
train_pipeline = _base_.train_pipeline
train_pipeline[3].crop_size = (240, 320)  # (height, width) by mistake: portrait crops, as the kept runs were trained
train_dataloader = dict(dataset=dict(pipeline=train_pipeline), **no_workers)
val_dataloader = dict(**no_workers)
test_dataloader = val_dataloader
lambda_logits = dict(lr_mult=1.0, decay_mult=0.0)
optim_wrapper = dict(
    optimizer=dict(lr=5e-4),
    paramwise_cfg=dict(custom_keys=dict(mean_logit=lambda_logits, var_logit=lambda_logits)),
)
custom_hooks = []  # the study adds its own
train_cfg = dict(max_epochs=max_epochs, val_interval=6)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
