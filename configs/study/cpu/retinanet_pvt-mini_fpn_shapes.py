"""The study's detector at CPU size: RetinaNet on 400 generated images of 128 x 128 pixels, from its own pretraining."""

_base_ = [
    '../../_base_/models/retinanet_pvt-mini_fpn.py',
    '../../_base_/datasets/shapes_detection.py',
    '../../_base_/schedules/scratch_cpu.py',
]

data_root = 'data/study_shapes/'
image_scale = (128, 128)
max_epochs = 12

model = dict(
    backbone=dict(pretrain_img_size=64),
    bbox_head=dict(num_classes=4),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=image_scale, ratio_range=(0.8, 1.25), keep_ratio=True),
    dict(type='RandomCrop', crop_size=image_scale, allow_negative_crop=True),
    dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
files = dict(data_root=data_root)
no_workers = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **files), **no_workers)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **files), **no_workers)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=max_epochs, val_interval=2)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=75),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(_delete_=True, type='CheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = []
