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
work_dir = 'work_dirs/demo-control'
