"""RetinaNet on PVT-Tiny, blood cells at 640 x 480 pixels, from its own pretraining."""

_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/scratch_cpu.py',
]

image_scale = (640, 480)
max_epochs = 48

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(_delete_=True, type='tokennorm.PVT', arch='tiny', pretrain_img_size=64),
    neck=dict(in_channels=[64, 128, 320, 512], norm_cfg=dict(type='GN', num_groups=32)),
    bbox_head=dict(num_classes=3),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=image_scale, ratio_range=(0.8, 1.25), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(480, 640), allow_negative_crop=True),
    dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(num_workers=8, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=75),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(_delete_=True, type='CheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = []
