"""Mask R-CNN on PVT-Tiny with LayerNorm, PVT's heads (1, 2, 5, 8) and its authors' ImageNet weights."""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/pvt_1x.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='tiny',
        init_cfg=dict(type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth'),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
