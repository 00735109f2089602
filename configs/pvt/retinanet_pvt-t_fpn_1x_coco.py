"""RetinaNet on PVT-Tiny with LayerNorm, PVT's heads (1, 2, 5, 8) and its authors' ImageNet weights."""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    'mmdet::_base_/datasets/coco_detection.py',
    '../_base_/schedules/pvt_1x.py',
    'mmdet::_base_/default_runtime.py',
    'mmdet::retinanet/retinanet_tta.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='tiny',
        norm_cfg=dict(type='LN', eps=1e-6),  # as in mmdet's detectors, which were trained on COCO
        init_cfg=dict(type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth'),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
