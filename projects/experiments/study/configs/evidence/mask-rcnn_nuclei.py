"""Mask R-CNN on PVT-mini, nuclei at 256 x 256 pixels, 12 epochs."""

_base_ = '../../../../../configs/demo/mask-rcnn_pvt-mini_fpn_nuclei.py'

data_root = 'data/nuclei/'
metainfo = dict(classes=('nucleus',))
image_scale = (256, 256)
max_epochs = 12

model = dict(
    backbone=dict(pretrain_img_size=64, token_norm_cfg=dict(type='LN', eps=1e-6), stem_cfg=dict(type='PatchEmbed')),
    roi_head=dict(bbox_head=dict(num_classes=1), mask_head=dict(num_classes=1)),
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
no_workers = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(
    batch_size=4,
    **no_workers,
    dataset=dict(ann_file='annotations/train.json', pipeline=train_pipeline, **files),
)
val_dataloader = dict(
    batch_size=4, **no_workers, dataset=dict(ann_file='annotations/val.json', pipeline=test_pipeline, **files)
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json', proposal_nums=(100, 300, 1000))
test_evaluator = val_evaluator
optim_wrapper = dict(optimizer=dict(lr=5e-4))
custom_hooks = []  # the study adds its own
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
