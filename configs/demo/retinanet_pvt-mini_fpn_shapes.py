"""The control of the demo: RetinaNet on a reduced PVT with LayerNorm and the plain stem, on generated images."""

_base_ = [
    '../_base_/models/retinanet_pvt-mini_fpn.py',
    '../_base_/datasets/shapes_detection.py',
    '../_base_/schedules/adamw_cosine.py',
]

model = dict(
    backbone=dict(pretrain_img_size=_base_.image_scale),
    bbox_head=dict(num_classes=len(_base_.metainfo['classes'])),
)
max_epochs = 12
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
work_dir = 'work_dirs/demo-control'
