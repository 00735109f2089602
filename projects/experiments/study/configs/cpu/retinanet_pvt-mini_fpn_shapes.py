"""The study's detector at CPU size: RetinaNet on 400 generated images of 128 x 128 pixels, from its own pretraining."""

_base_ = [
    '../../../../../configs/_base_/models/retinanet_pvt-mini_fpn.py',
    '../../../../../configs/_base_/datasets/shapes_detection.py',
    '../../../../../configs/_base_/schedules/adamw_cosine.py',
]

data_root = 'data/study_shapes/'
max_epochs = 12

norm_cfg = dict(type='GN', num_groups=8)  # as the kept runs were trained
model = dict(
    backbone=dict(pretrain_img_size=64),
    neck=dict(norm_cfg=norm_cfg),
    bbox_head=dict(num_classes=4, norm_cfg=norm_cfg),
)
files = dict(data_root=data_root)
train_dataloader = dict(dataset=files)
val_dataloader = dict(dataset=files)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_evaluator = val_evaluator
custom_hooks = []  # the study adds its own
train_cfg = dict(max_epochs=max_epochs, val_interval=2)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
