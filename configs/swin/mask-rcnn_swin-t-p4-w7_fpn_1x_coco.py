"""Mask R-CNN on Swin-T with LayerNorm, initialized from the Swin authors' ImageNet weights."""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/swin_1x.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
