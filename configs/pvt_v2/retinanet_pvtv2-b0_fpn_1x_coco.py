"""RetinaNet on PVTv2-B0 with LayerNorm, initialized from the PVT authors' ImageNet weights."""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    'mmdet::_base_/datasets/coco_detection.py',
    '../_base_/schedules/pvt_1x.py',
    'mmdet::_base_/default_runtime.py',
    'mmdet::retinanet/retinanet_tta.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.PVTv2',
        arch='b0',
        norm_cfg=dict(type='LN', eps=1e-6),  # as in mmdet's detectors, which were trained on COCO
        init_cfg=dict(
            type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b0.pth'
        ),
    ),
    neck=dict(in_channels=[32, 64, 160, 256]),
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(_delete_=True)))  # PVTv2 has no position embedding
