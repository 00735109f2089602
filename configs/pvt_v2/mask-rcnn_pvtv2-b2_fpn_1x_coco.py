"""Mask R-CNN on PVTv2-B2 with LayerNorm, initialized from the PVT authors' ImageNet weights."""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/pvt_1x.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.PVTv2',
        arch='b2',
        init_cfg=dict(
            type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b2.pth'
        ),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(_delete_=True)))  # PVTv2 has no position embedding
