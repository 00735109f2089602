"""Mask R-CNN on Swin-B with LayerNorm, initialized from the Swin authors' ImageNet weights.

Drop path is 0.3, as in the Swin authors' Cascade Mask R-CNN: they have no Mask R-CNN on Swin-B.
"""

_base_ = './mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='base',
        drop_path_rate=0.3,
        init_cfg=dict(
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_base_patch4_window7_224.pth'
        ),
    ),
    neck=dict(in_channels=[128, 256, 512, 1024]),
)
