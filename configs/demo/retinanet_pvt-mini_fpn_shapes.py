"""The control of the demo: RetinaNet on a reduced PVT with LayerNorm and the plain stem, on generated images."""

_base_ = [
    '../_base_/models/retinanet_pvt-mini_fpn.py',
    '../_base_/datasets/shapes_detection.py',
    '../_base_/schedules/adamw_cosine.py',
]

model = dict(
    backbone=dict(pretrain_img_size=_base_.image_scale),
    bbox_head=dict(
        num_classes=len(_base_.metainfo['classes']),
        reg_decoded_bbox=True,
        loss_bbox=dict(_delete_=True, type='GIoULoss', loss_weight=2.0),
    ),
)
max_epochs = 5
train_cfg = dict(max_epochs=max_epochs)
# Without random sizes and crops: so few epochs learn more from images of one size.
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline[:2] + _base_.train_pipeline[4:]))
optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
work_dir = 'work_dirs/demo-control'
