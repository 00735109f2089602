"""Mask R-CNN on Swin-S with LayerNorm, initialized from the Swin authors' ImageNet weights."""

_base_ = './mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='small',
        init_cfg=dict(
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_small_patch4_window7_224.pth'
        ),
    )
)
