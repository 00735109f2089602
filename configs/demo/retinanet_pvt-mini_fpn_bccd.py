"""The detector of the demo with LayerNorm and the plain stem, on micrographs of blood cells."""

_base_ = [
    '../_base_/models/retinanet_pvt-mini_fpn.py',
    '../_base_/datasets/bccd_detection.py',
    '../_base_/schedules/adamw_cosine.py',
]

model = dict(
    backbone=dict(pretrain_img_size=(240, 320)),
    bbox_head=dict(num_classes=len(_base_.metainfo['classes'])),
)
max_epochs = 60
train_cfg = dict(max_epochs=max_epochs, val_interval=6)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
default_hooks = dict(checkpoint=dict(interval=6))
work_dir = 'work_dirs/bccd-control'
