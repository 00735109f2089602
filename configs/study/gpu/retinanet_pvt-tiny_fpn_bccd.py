"""RetinaNet on PVT-Tiny, blood cells at 640 x 480 pixels, from its own pretraining."""

_base_ = [
    '../../_base_/models/retinanet_fpn.py',
    '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/study_detector.py',
]

image_scale = (640, 480)
max_epochs = 48

model = dict(
    backbone=dict(type='tokennorm.PVT', arch='tiny', pretrain_img_size=64),
    neck=dict(in_channels=[64, 128, 320, 512], norm_cfg=dict(type='GN', num_groups=32)),
    bbox_head=dict(num_classes=3),
)
train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # RandomResize
train_pipeline[3].crop_size = (480, 640)  # RandomCrop
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
train_dataloader = dict(num_workers=8, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
