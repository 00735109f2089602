"""RetinaNet on Swin-T with LayerNorm, initialized from the Swin authors' ImageNet weights.

The schedule is mmdet's for Mask R-CNN on Swin-T. mmdet trains its own RetinaNet on Swin-T with SGD.
"""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    'mmdet::_base_/datasets/coco_detection.py',
    '../_base_/schedules/swin_1x.py',
    'mmdet::_base_/default_runtime.py',
    'mmdet::retinanet/retinanet_tta.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.Swin',
        arch='tiny',
        out_indices=(1, 2, 3),
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
    neck=dict(in_channels=[192, 384, 768], start_level=0),
)
