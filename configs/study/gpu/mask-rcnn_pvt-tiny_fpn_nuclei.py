"""Mask R-CNN on PVT-Tiny, nuclei enlarged to 512 pixels, from its own pretraining.

Images have up to 375 nuclei: as many detections are kept, and AP counts them all (mmdet's counts 100 otherwise).
"""

_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    '../../_base_/datasets/shapes_detection.py',
    '../../_base_/schedules/scratch_cpu.py',
]

data_root = 'data/nuclei/'
metainfo = dict(_delete_=True, classes=('nucleus',))
image_scale = (512, 512)
max_epochs = 36

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(_delete_=True, type='tokennorm.PVT', arch='tiny', pretrain_img_size=64),
    neck=dict(in_channels=[64, 128, 320, 512], norm_cfg=dict(type='GN', num_groups=32)),
    rpn_head=dict(anchor_generator=dict(scales=[4])),  # sides of 16 to 256 pixels
    roi_head=dict(bbox_head=dict(num_classes=1), mask_head=dict(num_classes=1)),
    test_cfg=dict(rcnn=dict(max_per_img=400)),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomResize', scale=image_scale, ratio_range=(0.8, 1.25), keep_ratio=True),
    dict(type='RandomCrop', crop_size=image_scale, allow_negative_crop=True),
    dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
files = dict(data_root=data_root, metainfo=metainfo, data_prefix=dict(img='images/'))
train_dataloader = dict(num_workers=8, dataset=dict(pipeline=train_pipeline, **files))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=test_pipeline, **files))
test_dataloader = val_dataloader
val_evaluator = dict(
    ann_file=data_root + 'annotations/val.json',
    metric=['bbox', 'segm'],
    use_mp_eval=True,
    proposal_nums=(100, 300, 1000),
)
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=75),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(_delete_=True, type='CheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = []
